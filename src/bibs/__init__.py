"""Fill in the blanks with two models that each read in one direction."""

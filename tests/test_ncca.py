"""Normalised CCA against a second way of computing it, and on data whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from bibs.models.ncca import BagOfWords, JointSpace


def correlated(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    shared = generator.normal(size=(n, 2))
    pictures = np.hstack([shared, generator.normal(size=(n, 4))]) @ generator.normal(size=(6, 6))
    texts = np.hstack([shared + 0.3 * generator.normal(size=(n, 2)), generator.normal(size=(n, 3))])
    return pictures + 5, texts @ generator.normal(size=(5, 5)) - 3


@pytest.mark.parametrize("seed", range(5))
def test_without_regularisation_correlations_are_the_cosines_between_the_column_spaces(seed: int) -> None:
    pictures, texts = correlated(seed)
    space = JointSpace.fit(pictures, texts, num_dimensions=5, regularisation=0.0)
    bases = [np.linalg.qr(side - side.mean(0))[0] for side in (pictures, texts)]
    expected = np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)
    assert space.correlations == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_the_maps_whiten_each_side_and_pair_their_axes(seed: int) -> None:
    pictures, texts = correlated(seed)
    space = JointSpace.fit(pictures, texts, num_dimensions=3, regularisation=0.0, power=0.0)
    left = (pictures - pictures.mean(0)) @ space.picture_map
    right = (texts - texts.mean(0)) @ space.text_map
    assert left.T @ left / len(left) == pytest.approx(np.eye(3), abs=1e-8)
    assert right.T @ right / len(right) == pytest.approx(np.eye(3), abs=1e-8)
    assert left.T @ right / len(left) == pytest.approx(np.diag(space.correlations), abs=1e-8)


def test_directions_without_variance_do_no_harm() -> None:
    pictures, texts = correlated(0)
    flat = np.hstack([pictures, np.full((len(pictures), 1), 7.0), pictures[:, :1]])
    with_flat = JointSpace.fit(flat, texts, num_dimensions=5, regularisation=0.0)
    without = JointSpace.fit(pictures, texts, num_dimensions=5, regularisation=0.0)
    assert with_flat.correlations == pytest.approx(without.correlations, abs=1e-6)


def test_the_answer_that_goes_with_a_kind_of_picture_is_retrieved() -> None:
    generator = np.random.default_rng(0)
    answers = [("riding",), ("sitting", "on"), ("holding", "a"), ("eating",)]
    centres = generator.normal(size=(4, 10)) * 3
    kinds = generator.integers(4, size=400)
    pictures = centres[kinds] + generator.normal(size=(400, 10))
    bag = BagOfWords.of(answers)
    space = JointSpace.fit(pictures[:300], bag.vectors([answers[kind] for kind in kinds[:300]]))
    assert (space.nearest(pictures[300:], bag.vectors(answers)) == kinds[300:]).sum() >= 95


def test_narrowing_equals_fitting_with_fewer_dimensions() -> None:
    pictures, _ = correlated(3)
    words = [(f"w{k % 7}", f"v{k % 3}") for k in range(len(pictures))]
    texts = BagOfWords.of(words).vectors(words)
    narrow = JointSpace.fit(pictures, texts, num_dimensions=6).narrowed(2)
    fitted = JointSpace.fit(pictures, texts, num_dimensions=2)
    assert (narrow.nearest(pictures, texts) == fitted.nearest(pictures, texts)).all()


def test_a_bag_of_words_has_unit_length_and_ignores_order_and_strangers() -> None:
    bag = BagOfWords.of([("a", "b"), ("b", "c")])
    one, other, strange = bag.vectors([("a", "b"), ("b", "a", "x"), ("x",)])
    assert one == pytest.approx(other)
    assert np.linalg.norm(one) == pytest.approx(1)
    assert not strange.any()


def test_bad_inputs_are_named() -> None:
    pictures, texts = correlated(0)
    with pytest.raises(ValueError, match=r"`texts` must be one per picture \(200, at least 2\), but are 199"):
        JointSpace.fit(pictures, texts[1:])
    with pytest.raises(ValueError, match="`num_dimensions` must be at least 1, but is 0"):
        JointSpace.fit(pictures, texts, num_dimensions=0)
    with pytest.raises(ValueError, match="`regularisation` must be at least 0, but is -1"):
        JointSpace.fit(pictures, texts, regularisation=-1)

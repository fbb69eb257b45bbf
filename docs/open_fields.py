"""A hook of mkdocs: the fields of a dataclass stand open on the page of the Python reference."""


def on_page_content(html: str, **_: object) -> str:
    return html.replace('<details class="mkdocstrings-source">', '<details class="mkdocstrings-source" open>')

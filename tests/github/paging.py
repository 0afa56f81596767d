"""One page of a list, and the links to the others."""

from urllib.parse import urlencode

from .calls import Answer

__all__ = ["paginate"]


def paginate(answer: Answer, query: dict[str, str], address: str) -> None:
    """Leave the page asked for in `answer`, with links to the others below `address`.

    GitHub takes what is no page, or too many to one, for its default or its greatest.
    """

    def asked(name: str, otherwise: int) -> int:
        text = query.get(name, "")
        return int(text) if text.isdecimal() and int(text) else otherwise

    size, page = min(asked("per_page", 30), 100), asked("page", 1)
    last = max(1, -(-len(answer.body) // size))
    answer.body = answer.body[(page - 1) * size : page * size]
    pages = {}
    if page > 1:
        pages["prev"] = min(page - 1, last)
    if page < last:
        pages |= {"next": page + 1, "last": last}
    if page > 1:
        pages["first"] = 1
    links = [f'<{address}?{urlencode({**query, "page": number})}>; rel="{rel}"' for rel, number in pages.items()]
    if links:
        answer.headers["Link"] = ", ".join(links)

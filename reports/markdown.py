"""The report as Markdown: every number of the HTML; of a picture, what it shows in words."""

from reports.document import Banner, Block, Bullets, Document, Paragraph, Plot, Table
from reports.html import sign


def render(document: Document, footer: str) -> str:
    """Return *document* as GitHub-flavoured Markdown."""
    lines = [f"# {document.title}", "", document.subtitle, ""]
    for section in document.sections:
        lines += [f"## {section.title}", ""]
        for block in section.blocks:
            lines += [*_block(block), ""]
    return "\n".join([*lines, "---", "", footer, ""])


def _block(block: Block) -> list[str]:
    match block:
        case Banner():
            tiles = [f"- {t.label}: **{t.value}** ({t.detail})" for t in block.tiles]
            return [f"**{sign(block.answer)} {block.headline}**", "", *_each(block), *tiles]
        case Paragraph():
            return [f"> {block.text}" if block.kind == "warn" else block.text]
        case Bullets():
            return [f"- {item}" for item in block.items]
        case Plot():
            return [f"*Picture: {block.title}.* {block.reading}"]
        case Table():
            return _table(block)


def _each(block: Banner) -> list[str]:
    return [part for sentence in block.sentences for part in (sentence, "")]


def _table(table: Table) -> list[str]:
    rules = [":--" if i in table.text_columns or not i else "--:" for i in range(len(table.head))]
    rows = []
    for row in table.rows:
        cells = [c.replace("|", "\\|").replace("\n", " ") for c in row]
        if table.status is not None:
            cells[table.status] = f"{sign(cells[table.status])} {cells[table.status]}"
        rows.append(f"| {' | '.join(cells)} |")
    head = " | ".join(table.head)
    return [f"**{table.caption}**", "", f"| {head} |", f"| {' | '.join(rules)} |", *rows]

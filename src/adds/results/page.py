"""Pages of HTML that need nothing else: every table and figure is one, and the report puts their bodies together."""

from html import escape

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 72rem; margin: 2rem auto; padding: 0 1.2rem }
table { border-collapse: collapse; font-size: 14px }
th, td { padding: .3em .8em; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top }
figure { margin: 1rem 0 } figure img { max-width: 100%; max-height: 78vh }
figcaption, .note { color: #444; max-width: 60rem }
.scroll { overflow-x: auto }
.holds { color: #1b7837 } .contradicted { color: #b2182b } .undecided { color: #666 }
@media print { body { max-width: none; margin: 0 } figure, table { break-inside: avoid } }
"""


def page(title: str, body: str) -> str:
    """Return a whole page."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def body_of(text: str) -> str:
    """Return the body of a page that `page` wrote."""
    return text.split("<body>\n", 1)[1].rsplit("\n</body>", 1)[0]

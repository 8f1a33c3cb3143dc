"""What every page has to pass in a browser, at the width of a phone, of a tablet and of a desk."""

from typing import Any

import pytest

WIDTHS = (390, 768, 1400)
# Letters that lie outside of the drawing or of a box that hides what is too long, and cells that lie on each other.
CUT = """() => {
  const found = [];
  const shown = (node) => node.getClientRects().length > 0;
  const outside = (inner, outer) => inner.left < outer.left - 1 || inner.right > outer.right + 1
    || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1;
  for (const drawing of document.querySelectorAll("svg.chart")) {
    if (!shown(drawing)) continue;
    const frame = drawing.getBoundingClientRect();
    for (const text of drawing.querySelectorAll("text"))
      if (outside(text.getBoundingClientRect(), frame)) found.push("outside of its chart: " + text.textContent);
  }
  for (const node of document.querySelectorAll("body *")) {
    if (!shown(node) || node.closest("svg, .scroll, .unseen, .jump, textarea, input, select")) continue;
    const style = getComputedStyle(node), start = node.outerHTML.slice(0, 80);
    if (style.display === "inline") continue;
    if (style.overflowX !== "visible" && node.scrollWidth > node.clientWidth + 1) found.push("cut: " + start);
    const box = node.getBoundingClientRect();
    if (box.right > document.documentElement.clientWidth + 1) found.push("beyond the screen: " + start);
  }
  for (const box of document.querySelectorAll(".scroll")) {
    if (!shown(box) || box.scrollWidth <= box.clientWidth + 1) continue;
    const hint = box.parentElement.querySelector(".hint");
    if (!hint || !shown(hint)) found.push("scrolls without saying so: " + box.getAttribute("aria-label"));
  }
  return found;
}"""
# Texts of one chart that lie on each other.
OVERLAPS = """() => {
  const found = [];
  for (const drawing of document.querySelectorAll("svg.chart")) {
    if (!drawing.getClientRects().length) continue;
    const texts = [...drawing.querySelectorAll("text")];
    const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
    boxes.forEach(([one, a], place) => boxes.slice(place + 1).forEach(([other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 4.5) found.push(one + " | " + other);
    }));
  }
  return found;
}"""


def axe_script() -> str:
    """The script of axe-core, as a Python package carries it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs pip install 'prbench[dev]'")
    return str(axe.Axe().axe_script)


def violations(page: Any, **rules: Any) -> list[str]:
    """Return what axe finds on the page as it stands; its script has to be there."""
    found = page.evaluate("rules => axe.run(rules)", {"resultTypes": ["violations"], **rules})["violations"]
    return [f"{rule['id']}: {node['html'][:120]}" for rule in found for node in rule["nodes"]]


def check_page(page: Any, name: str, widths: tuple[int, ...] = WIDTHS) -> None:
    """Assert that axe finds nothing, that nothing is cut, and that the page is no wider than the screen."""
    page.evaluate(axe_script())
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            # Colors are all that the scheme changes, and half the time goes into the other rules.
            rules = {} if scheme == "light" else {"runOnly": ["color-contrast"]}
            assert violations(page, **rules) == [], (name, width, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
        assert page.evaluate(CUT) == [], (name, width)
        assert page.evaluate(OVERLAPS) == [], (name, width)

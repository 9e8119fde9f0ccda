"""The report in a browser: no overflow, no cut or overlapping text in figures, light and dark color schemes."""

import io
import shutil

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="requires chromium and chromium-driver")

QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
KINDS = ["paper", "scaling", "troubled", "many", "single", "empty", "old"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in (*QUIET, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def open_at(browser, report, width, scheme="light"):
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(report.html.as_uri())


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("kind", KINDS)
def test_page_does_not_scroll_horizontally(browser, reports, kind, width):
    open_at(browser, reports(kind), width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("kind", KINDS)
def test_browser_console_is_empty(browser, reports, kind):
    open_at(browser, reports(kind), 1000)
    assert [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]] == []


TEXTS = """
return [...document.querySelectorAll('figure')].flatMap(figure => {
  const svg = figure.querySelector('svg'), box = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim());
  const found = [], rects = texts.map(t => t.getBoundingClientRect());
  texts.forEach((text, i) => {
    const r = rects[i];
    if (r.left < box.left - 0.5 || r.right > box.right + 0.5 || r.top < box.top - 0.5 || r.bottom > box.bottom + 0.5)
      found.push(figure.id + ': cut: ' + text.textContent);
    for (let j = 0; j < i; j++) {
      const s = rects[j];
      const x = Math.min(r.right, s.right) - Math.max(r.left, s.left);
      const y = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
      // The box of a line is higher than its letters, so a small vertical overlap is not visible.
      if (x > 1 && y > 3.5) found.push(figure.id + ': overlap: ' + text.textContent + ' | ' + texts[j].textContent);
    }
  });
  return found;
});
"""


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_a_figure_is_cut_or_overlaps(browser, reports, kind):
    open_at(browser, reports(kind), 1280)
    assert browser.execute_script(TEXTS) == []


COLOURS = """
const background = getComputedStyle(document.body).backgroundColor;
return [background, ...[...document.querySelectorAll('svg text, p, td')].map(t =>
  t.closest('svg') ? getComputedStyle(t).fill : getComputedStyle(t).color)];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["paper", "scaling", "troubled"])
def test_text_has_contrast_in_both_color_schemes(browser, reports, kind, scheme):
    open_at(browser, reports(kind), 1000, scheme)
    background, *colours = browser.execute_script(COLOURS)
    assert (luminance(background) < 0.05) == (scheme == "dark")
    # 3 : 1 is the limit of WCAG for graphics and large text; the labels of networks are closest to it.
    weak = {colour for colour in set(colours) if contrast(colour, background) < 3}
    assert weak == set()


def test_screenshots_are_not_empty(browser, reports):
    from PIL import Image

    for scheme in ("light", "dark"):
        open_at(browser, reports("paper"), 1000, scheme)
        image = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("L")
        assert len(image.getcolors(256)) > 50


def test_print_uses_the_light_scheme(browser, reports):
    open_at(browser, reports("paper"), 1000, "dark")
    media = {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert luminance(background) > 0.9


def channels(colour):
    numbers = colour[colour.index("(") + 1 : -1].split(",")
    return [float(number) / 255 for number in numbers[:3]]


def luminance(colour):
    """Return the relative luminance of WCAG 2.2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Return the contrast ratio of WCAG 2.2."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)

"""The report in a browser: no overflow, no cut or overlapping text in figures, light and dark color schemes."""

import io
import shutil
import threading

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from k8sdds.report import live, write_report
from k8sdds.report.export import Findings
from k8sdds.report.table import Cell, Table
from tests import run_folders as folders

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


def console(browser):
    return [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]]


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
def test_the_page_fits_no_text_of_a_figure_is_cut_and_the_console_is_empty(browser, reports, kind):
    for width in (360, 768, 1280):
        open_at(browser, reports(kind), width)
        assert width < 1280 or browser.execute_script(TEXTS) == []
        browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert console(browser) == []


COLORS = """
const background = getComputedStyle(document.body).backgroundColor;
return [background, ...[...document.querySelectorAll('svg text, p, td')].map(t =>
  t.closest('svg') ? getComputedStyle(t).fill : getComputedStyle(t).color)];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["paper", "scaling", "troubled"])
def test_text_has_contrast_in_both_color_schemes(browser, reports, kind, scheme):
    open_at(browser, reports(kind), 1000, scheme)
    background, *colors = browser.execute_script(COLORS)
    assert (luminance(background) < 0.05) == (scheme == "dark")
    # 3 : 1 is the limit of WCAG for graphics and large text; the labels of networks are closest to it.
    weak = {color for color in set(colors) if contrast(color, background) < 3}
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


INJECTED = """
document.head.append(Object.assign(document.createElement('script'), {textContent: 'document.title = 2'}))
"""


def find(browser, selector):
    return browser.find_elements(By.CSS_SELECTOR, selector)


def shown_rows(browser, table):
    return browser.execute_script(
        "return [...arguments[0].tBodies[0].rows].filter(r => !r.hidden).map(r => [...r.cells].map(c => c.textContent))",
        table,
    )


def drawn(browser):
    """Wait for the interactive figure and return its points."""
    points = ".chart .mark-symbol.role-mark path[aria-roledescription=point]"
    WebDriverWait(browser, 60).until(lambda _: find(browser, points))
    return find(browser, points)


def click(browser, item):
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", item)
    ActionChains(browser).move_to_element(item).click().perform()


def choose(browser, label, text):
    field = next(field for field in find(browser, ".controls label") if field.text.startswith(label))
    Select(field.find_element(By.TAG_NAME, "select")).select_by_visible_text(text)


def test_tables_are_sorted_and_filtered(browser, reports):
    open_at(browser, reports("troubled"), 1280)
    table = find(browser, "section[aria-labelledby=trials] table")[0]
    click(browser, find(browser, "section[aria-labelledby=trials] summary")[0])
    original = shown_rows(browser, table)
    head = table.find_elements(By.CSS_SELECTOR, "thead th")[6]
    for order in ("ascending", "descending"):
        click(browser, head.find_element(By.TAG_NAME, "button"))
        values = [row[6] for row in shown_rows(browser, table)]
        numbers = [float(value) for value in values if value != "–"]
        assert numbers == sorted(numbers, reverse=order == "descending") and len(set(numbers)) > 1
        assert all(value == "–" for value in values[len(numbers) :])
        assert head.get_attribute("aria-sort") == order
    click(browser, head.find_element(By.TAG_NAME, "button"))
    assert shown_rows(browser, table) == original
    find(browser, "section[aria-labelledby=trials] input[type=search]")[0].send_keys("host latency")
    filtered = shown_rows(browser, table)
    assert 0 < len(filtered) < len(original)
    assert all("host" in row[0] and "latency" in row[1] for row in filtered)


def test_tables_of_other_pages_are_sorted_and_filtered(browser, tmp_path):
    rows = [[Cell(f"{name}, 1 KiB"), Cell(change, mark="worse")]
            for name, change in [("host", "3 [1, 5]"), ("weavenet", "-20 [-30, -10]"), ("flannel", "11 [9, 13]"),
                                 ("kube-router", "–"), ("macvlan", "2 [0, 4]")]]  # fmt: skip
    table = Table("Levels", ["cell", "change %"], rows)
    findings = Findings("compare", "h", "s", ["one"], [table], ["two"], {}, [], [])
    browser.get(findings.write(tmp_path)[0].as_uri())
    shown = find(browser, "main table")[0]
    click(browser, find(browser, "thead th button")[1])
    assert [row[1].split()[0] for row in shown_rows(browser, shown)] == ["−20", "2", "3", "11", "–"]
    find(browser, "input[type=search]")[0].send_keys("weave")
    assert [row[0] for row in shown_rows(browser, shown)] == ["weavenet, 1 KiB"]
    assert console(browser) == []
    browser.execute_script(INJECTED)
    assert browser.title == "h: s" and browser.get_log("browser")


def test_points_of_the_interactive_figure_link_to_their_trials(browser, reports):
    report = reports("scaling")
    open_at(browser, report, 1280)
    points = drawn(browser)
    ActionChains(browser).scroll_to_element(points[0]).move_to_element(points[0]).perform()
    hint = find(browser, ".tip")[0].text
    assert "n = " in hint and "95 % interval" in hint
    network = hint.split(",")[0]
    click(browser, points[0])
    rows = shown_rows(browser, find(browser, "section[aria-labelledby=trials] table")[0])
    trials = {row["trial_id"]: row["network_label"] for row in report.content.best}
    assert rows and {trials[row[-1]] for row in rows} == {network}
    assert len(rows) == int(hint.rsplit("n = ")[1])
    section = find(browser, "section[aria-labelledby=trials]")[0]
    assert f"rows: {hint.splitlines()[0]}" in section.find_element(By.TAG_NAME, "output").text
    next(b for b in section.find_elements(By.TAG_NAME, "button") if b.text == "Back to the figure").click()
    assert len(shown_rows(browser, section.find_element(By.TAG_NAME, "table"))) == len(report.run.attempts())
    box = browser.execute_script("return arguments[0].getBoundingClientRect().toJSON()", points[0])
    assert 0 <= box["top"] <= 900


def test_a_phone_shows_panels_and_cells_one_below_the_other(browser, reports):
    open_at(browser, reports("paper"), 400)
    lefts = """return [...document.querySelectorAll(arguments[0])].map(item => item.getBoundingClientRect())
        .map(box => [box.left, box.right, box.top])"""
    panels = browser.execute_script(lefts, "#figure-overhead .parts svg")
    assert len(panels) == 2 and len({left for left, _, _ in panels}) == 1
    assert all(right <= 400 for _, right, _ in panels) and panels[0][2] < panels[1][2]
    whole = "return document.querySelector('#figure-overhead .whole').clientWidth"
    assert browser.execute_script(whole) == 0
    table = "section[aria-labelledby=overheads] table"
    assert all(right <= 400 for _, right, _ in browser.execute_script(lefts, f"{table} td"))
    head = "return getComputedStyle(document.querySelector(arguments[0]), '::before').content"
    assert browser.execute_script(head, f"{table} td") == '"64 B"'
    open_at(browser, reports("paper"), 1280)
    assert browser.execute_script(whole) > 500


@pytest.mark.parametrize("width", [400, 1280])
def test_the_contents_stay_in_view_and_lead_to_sections(browser, reports, width):
    open_at(browser, reports("paper"), width)
    link = find(browser, "nav a[href='#overheads']")[0]
    browser.execute_script("arguments[0].click()", link)
    heading, contents = (
        browser.execute_script("return arguments[0].getBoundingClientRect().top", find(browser, name)[0])
        for name in ("#overheads", "nav")
    )
    assert contents == 0 and 0 <= heading < 100
    facts = find(browser, "section[aria-labelledby=testbed] table")[0]
    assert not facts.is_displayed()
    browser.execute_script("arguments[0].click()", find(browser, "nav a[href='#testbed']")[0])
    WebDriverWait(browser, 60).until(lambda _: facts.is_displayed())


def test_print_shows_all_columns(browser, reports):
    open_at(browser, reports("paper"), 688)  # the width of the text of a page
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    wide = browser.execute_script("""return [...document.querySelectorAll('table')].filter(table =>
        table.getBoundingClientRect().right > 689).map(table => table.innerText.slice(0, 60))""")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert wide == []


def test_networks_quantities_and_axes_are_selected(browser, reports):
    open_at(browser, reports("troubled"), 1280)
    before = len(drawn(browser))
    box = find(browser, "fieldset input")[0]
    click(browser, box)
    WebDriverWait(browser, 60).until(lambda _: 0 < len(drawn(browser)) < before)
    click(browser, box)
    WebDriverWait(browser, 60).until(lambda _: len(drawn(browser)) == before)
    choose(browser, "Quantity", "p99 latency (latency)")
    WebDriverWait(browser, 60).until(
        lambda _: "p99 latency" in find(browser, ".chart svg")[0].get_attribute("innerHTML")
    )
    linear = find(browser, ".chart svg")[0].get_attribute("innerHTML")
    click(browser, next(field for field in find(browser, ".controls label") if "Logarithmic" in field.text))
    WebDriverWait(browser, 60).until(
        lambda _: find(browser, ".chart svg")[0].get_attribute("innerHTML") != linear
    )
    assert "log scale" in find(browser, ".chart svg")[0].get_attribute("innerHTML")


@pytest.mark.parametrize(("kind", "figure", "marks"), [
    ("troubled", "networks × payloads or subscribers", "rect mark"),
    ("troubled", "one quantity against another", "point"),
    ("troubled", "over the time of a trial", "point"),
    ("scaling", "subscribers of a trial", "tick"),
])  # fmt: skip
def test_every_interactive_figure_shows_values_and_links_to_trials(browser, reports, kind, figure, marks):
    report = reports(kind)
    open_at(browser, report, 1280)
    drawn(browser)
    choose(browser, "Figure", figure)
    described = f'.chart[aria-label^="{figure}"] [aria-roledescription="{marks}"]'
    WebDriverWait(browser, 60).until(lambda _: find(browser, described))
    shown = find(browser, described)
    listed = find(browser, ".explorer tbody tr")
    assert shown and listed
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", shown[0])
    ActionChains(browser).move_to_element(shown[0]).perform()
    hint = find(browser, ".tip")[0].text
    assert "n = " in hint and any(letter.isdigit() for letter in hint.splitlines()[1])
    network = hint.splitlines()[0].split(",")[0]
    click(browser, shown[0])
    rows = shown_rows(browser, find(browser, "section[aria-labelledby=trials] table")[0])
    trials = {row["trial_id"]: row["network_label"] for row in report.content.best}
    assert rows and {trials[row[-1]] for row in rows} == {network}


def test_the_keyboard_reaches_the_trials_of_a_point(browser, reports):
    open_at(browser, reports("scaling"), 1280)
    drawn(browser)
    find(browser, ".explorer summary")[0].send_keys("\ue007")
    button = find(browser, ".explorer tbody button")[0]
    assert "Show the trials of" in button.get_attribute("aria-label")
    button.send_keys("\ue007")
    assert find(browser, "section[aria-labelledby=trials] details")[0].get_attribute("open")
    assert browser.switch_to.active_element.get_attribute("type") == "search"


def test_without_scripts_all_figures_and_tables_are_there(browser, reports):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_at(browser, reports("scaling"), 1280)
        assert len(find(browser, "figure svg")) == len(
            list((reports("scaling").folder / "figures").glob("*.svg"))
        )
        assert not find(browser, "button, input, select") and not find(browser, "#explore")[0].is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_labels_of_networks_are_never_code(browser, tmp_path):
    run = folders.single(tmp_path / "run")
    label = "</script><img src=x onerror='document.title=1'>"
    for item in run.attempts():
        run.append_attempt(item | {"trial_id": "e" + item["trial_id"], "network_label": label})
    browser.get(write_report(run, None).as_uri())
    drawn(browser)
    assert label in find(browser, "fieldset")[0].text
    assert not find(browser, "img") and browser.title != "1"
    # The policy refuses every script that is not part of the report.
    browser.execute_script(INJECTED)
    assert browser.title != "2"


@pytest.mark.long
def test_a_live_report_shows_new_results(browser, tmp_path):
    run = folders.single(tmp_path / "run")
    with live.server(run, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.get(f"http://127.0.0.1:{server.server_address[1]}/")
        drawn(browser)
        item = run.attempts()[0]
        run.append_attempt(item | {"trial_id": "new", "network_label": "new-network"})
        WebDriverWait(browser, 60).until(lambda _: "new-network" in find(browser, "main")[0].text)
        # A reader who uses the page is not interrupted.
        drawn(browser)
        click(browser, find(browser, "fieldset input")[0])
        run.append_attempt(item | {"trial_id": "newer", "network_label": "newer-network"})
        WebDriverWait(browser, 60).until(lambda _: find(browser, ".live button"))
        assert "newer-network" not in find(browser, "main")[0].text
        click(browser, find(browser, ".live button")[0])
        WebDriverWait(browser, 60).until(lambda _: "newer-network" in find(browser, "main")[0].text)
        server.shutdown()
    WebDriverWait(browser, 60).until(lambda _: "has ended" in find(browser, ".live")[0].text)
    browser.get_log("browser")


def channels(color):
    numbers = color[color.index("(") + 1 : -1].split(",")
    return [float(number) / 255 for number in numbers[:3]]


def luminance(color):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)

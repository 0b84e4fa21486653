# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of the built site that are wider than the window, of the width of a screen and of a telephone, by headless
Chromium; and pictures of all pages for people to look at.

  page_widths.py HTML              names pages that would have to be scrolled sideways
  page_widths.py HTML --to FOLDER  takes a picture of each page at each width, too
"""

import argparse
import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

WIDTHS = (1280, 400)
CHROMIUM = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
# Loads page after page into frames of each width and writes down how wide they came out.
MEASURE = """<!doctype html><meta charset="utf-8"><title>widths</title><body><script>
const pages = PAGES, widths = WIDTHS, found = [];
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width: ${width}px; height: 900px; border: 0`;
  frame.src = page;
  document.body.append(frame);
  await new Promise(done => { frame.onload = done; });
  const root = frame.contentDocument.documentElement;
  const wide = [...frame.contentDocument.querySelectorAll(".content *")].find(
    x => x.getBoundingClientRect().right > width + 1 && !x.closest("pre, .figure-box, .table-wrapper, svg"));
  if (root.scrollWidth > width + 1)
    found.push([page, width, root.scrollWidth, wide ? wide.tagName + " " + wide.textContent.slice(0, 60) : ""]);
  frame.remove();
}
(async () => {
  for (const page of pages) for (const width of widths) await look(page, width);
  const result = document.createElement("pre");
  result.id = "found";
  result.textContent = JSON.stringify(found);
  document.body.append(result);
})();
</script>"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("--to", type=pathlib.Path)
    given = parser.parse_args()
    site = given.site.resolve()
    pages = sorted(page for page in site.rglob("*.html") if page.name not in ("genindex.html", "search.html"))
    with tempfile.TemporaryDirectory() as folder:
        start = pathlib.Path(folder, "widths.html")
        uris = json.dumps([page.as_uri() for page in pages])
        start.write_text(MEASURE.replace("PAGES", uris).replace("WIDTHS", str(list(WIDTHS))), encoding="utf-8")
        how = ["--allow-file-access-from-files", f"--virtual-time-budget={2000 * len(pages)}", "--dump-dom"]
        done = subprocess.run(
            [*CHROMIUM, *how, start.as_uri()], capture_output=True, text=True, check=True, timeout=600
        )
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)
    if match is None:
        print("Chromium did not get through the pages")
        return 1
    found = json.loads(html.unescape(match[1]))
    for page, width, reached, at in found:
        print(f"{page.rpartition('/html/')[2]}: {reached} pixels wide in a window of {width}: {at}")
    if given.to is not None:
        given.to.mkdir(parents=True, exist_ok=True)
        for page in pages:
            for width in WIDTHS:
                name = str(page.relative_to(site).with_suffix("")).replace("/", "_") + f"_{width}.png"
                picture = [f"--screenshot={given.to / name}", f"--window-size={width},2400", page.as_uri()]
                subprocess.run([*CHROMIUM, *picture], capture_output=True, check=True, timeout=120)
    print(f"counts: {len(pages)} pages at {len(WIDTHS)} widths, {len(found)} too wide")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

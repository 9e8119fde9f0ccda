
// Show new results of a running campaign: at once, or on request while the reader uses the page.
async function follow() {
  const shown = document.body.dataset.state;
  const notice = element("p", { className: "live" }, "Live: this page shows the campaign while it runs.");
  notice.setAttribute("role", "status");
  document.querySelector("header").append(notice);
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 2000));
    let state;
    try {
      state = await (await fetch("/state")).text();
    } catch {
      notice.textContent = "k8sdds report --serve has ended. This page shows its last results.";
      return;
    }
    if (state === shown) continue;
    const used = document.activeElement !== document.body || document.querySelector(".filtered, .sorted");
    if (!used) return location.reload();
    const button = element("button", { type: "button", textContent: "Show them" });
    button.addEventListener("click", () => location.reload());
    notice.replaceChildren("There are new results. ", button);
    return;
  }
}

follow();

// On the published site, each version is a folder beside versions.json: offer the others, and say if this one is not the newest.
const here = new URL(document.documentElement.dataset.content_root, location.href);
const root = new URL("..", here);
const page = location.href.slice(here.href.length);

async function open(version) {
  const folder = new URL(`${version}/`, root);
  const same = new URL(page, folder);
  location = (await fetch(same, { method: "HEAD" })).ok ? same : folder;
}

function offer(versions, mine) {
  const choice = document.createElement("select");
  choice.ariaLabel = "Version";
  choice.append(...versions.map((each) => new Option(each, each, each === mine, each === mine)));
  choice.onchange = () => open(choice.value);
  document.querySelector(".sidebar-brand").after(choice);
}

function warn(newest, mine) {
  const notice = document.createElement("div");
  notice.className = "announcement";
  notice.innerHTML = '<aside class="announcement-content"><span></span> <a href="#"></a></aside>';
  notice.querySelector("span").textContent =
    mine === "dev" ? "This page is of the development version." : `This page is of delayq ${mine}, an older version.`;
  const link = notice.querySelector("a");
  link.textContent = `Read it for ${newest}.`;
  link.onclick = () => open(newest);
  document.querySelector(".page").before(notice);
}

fetch(new URL("versions.json", root))
  .then((answer) => (answer.ok ? answer.json() : []))
  .then((versions) => {
    const mine = here.pathname.slice(root.pathname.length, -1);
    if (!versions.includes(mine)) return;
    offer(versions, mine);
    if (mine !== versions[0]) warn(versions[0], mine);
  })
  .catch(() => {}); // a site in a folder of a disk has no versions

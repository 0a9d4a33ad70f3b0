// How the search ranks what it finds: pages for users before reasons and history, and guides before the reference. The
// numbers at the end are Sphinx' own.
const asked = (new URLSearchParams(location.search).get("q") ?? "").trim().toLowerCase();
const stems = (text) => text.toLowerCase().split(/\W+/).map((word) => new Stemmer().stemWord(word));
const MEANT = {
  // words whose page has another title
  azure: "connection",
  backup: "runbook",
  cancel: "stopping",
  cron: "schedules",
  delay: "sending",
  dlq: "dead-letters",
  docker: "deploying",
  "exactly once": "guarantees",
  gdpr: "runbook",
  idempotent: "guarantees",
  kubernetes: "deploying",
  "multi-tenant": "tenants",
  priority: "several-queues",
  prometheus: "metrics",
  sentry: "middleware",
  worker: "processes",
};

var Scorer = {
  score: ([page, title, anchor, , score, , kind]) => {
    if (/^(decisions\/|changelog|architecture|benchmarks)/.test(page)) return score - 100;
    if (kind === "object") return title.split(".").pop().toLowerCase().includes(asked) ? score : score - 50;
    if (page === MEANT[asked] && !anchor) return score + 50;
    const own = stems(title.split(" > ")[0]);
    return stems(asked).some((word) => own.includes(word)) ? score + 15 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

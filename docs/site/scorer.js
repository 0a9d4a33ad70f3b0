// How the search ranks what it finds: pages for users before reasons and history. The numbers but `score` are Sphinx' own.
var Scorer = {
  score: ([page, , , , score]) => (/^(decisions\/|changelog|architecture|benchmarks)/.test(page) ? score - 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

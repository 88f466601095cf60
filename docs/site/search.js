// Scores of search results: pages that help to use or operate come before decisions and measurements, titles before text.
"use strict";

var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 12,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) => (/^(docs\/adr|benchmarks|CHANGELOG|ARCHITECTURE)/.test(page) ? score / 4 : score),
};

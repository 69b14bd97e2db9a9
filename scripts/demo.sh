#!/usr/bin/env bash
# The main job on the bundled graph of the world: train, evaluate, answer, explain.
set -euo pipefail
BIN=${BIN:-.venv/bin}
RUN=runs/world-demo

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() { printf '$ ekgn'; printf ' %q' "$@"; printf '\n'; "$BIN/ekgn" "$@"; }

rm -rf "$RUN"
say "1. Train on the bundled graph: countries, cities, regions, borders, languages, currencies"
show train world --preset demo --out "$RUN"
say "2. Rank the held-out facts, beside what rules of one fact alone can do"
show evaluate "$RUN"
say "3. Ask: which continent is Warsaw in? (The fact is held out: it takes three hops.)"
show predict "$RUN" --head Warsaw --relation city_in_continent --top 3
say "4. Ask for the other side: which countries use the euro that the graph does not list?"
show predict "$RUN" --tail Euro --relation uses_currency --hide-known --top 5
say "5. And why? The rules that training facts follow, and every lookup step of one answer"
show rules "$RUN" --relation city_in_region --top 3
show explain "$RUN" --head Chicago --relation city_in_region
say "Next: open the explorer in a browser with   $BIN/ekgn serve $RUN"

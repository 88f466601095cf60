"""YAML files that the command line must reject with a message."""

HEAD = "apiVersion: pdinference.io/v1alpha1\nkind: PDInference\nmetadata: {name: llama}\nspec:\n  model: "
LAUGHS = "a0: &a0 [lol, lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 60)}]}}\n" for n in range(1, 12))
FILES = {
    "deep": HEAD + "[" * 100_000,
    "deep and closed": HEAD + "[" * 5_000 + "]" * 5_000,
    "deep within what YAML reads": HEAD + "{a: " * 300 + "1" + "}" * 300,
    "aliases": LAUGHS + HEAD + "*a11\n",
    "merge keys": MERGES + HEAD + "*a11\n",
    "circle": HEAD + "&a [*a]",
    "number with many digits": HEAD + "9" * 5_000,
    "number in base 60 with many digits": HEAD + "1" + ":59" * 5_000,
    "hexadecimal number": HEAD + "0x" + "f" * 5_000,
    "date": HEAD + "2026-99-99",
    "keys that are lists": HEAD + "{? [a] : b}",
    "keys that are numbers": HEAD + "{1: b}",
    "binary": HEAD + "!!binary aGVsbG8=",
    "Python object": HEAD + "!!python/object/apply:os.system [echo]",
    "kind is a list": "kind: [PDInference]",
    "kind is an object": "kind: {a: PDInference}",
    "metadata is a list": "apiVersion: pdinference.io/v1alpha1\nkind: PDInference\nmetadata: [1]\nspec: {}",
    "no spec": "apiVersion: pdinference.io/v1alpha1\nkind: PDInference\nmetadata: {name: llama}",
    "zero byte": HEAD + "\0",
    "empty": "",
}

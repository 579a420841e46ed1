"""One form for equivalent graphs: folding, fusion, dead code, sizes that become known."""

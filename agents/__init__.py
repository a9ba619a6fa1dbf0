"""Everything that decides: rules, exact solvers, learned policies and their training."""

"""A carrier-grade NAT as an operator writes it down: its configuration, the graph it becomes, its cores."""

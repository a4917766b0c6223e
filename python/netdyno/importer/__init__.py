"""Load plans of other tools as profiles: JMeter plans, k6 scripts."""

"""Studies on scikit-learn's digits, and the tables and figures of README.md and docs/ made from records."""

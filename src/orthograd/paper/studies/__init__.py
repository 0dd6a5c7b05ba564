"""Studies on scikit-learn's digits beside the paper, and the tables and figures of README.md and docs/ from records."""

"""Boosted decision trees: the files that LightGBM and XGBoost write, and their scores."""

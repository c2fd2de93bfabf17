"""Boosted decision trees: read the files that LightGBM and XGBoost write, and compute scores with them."""

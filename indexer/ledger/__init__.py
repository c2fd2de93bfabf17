"""The ledger of a generation: which document was acknowledged with which digest, and who may build."""

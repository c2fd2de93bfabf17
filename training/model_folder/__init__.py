"""Write model folders after training: files, model card, figures."""

"""The target distributions of dense training: labels of candidate lists, of pairs, and of terms."""

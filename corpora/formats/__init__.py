"""Parts that readers share: lines, compression, fields, CSV dialects, markup."""

"""`termweave learn`: from judged questions or clicks to better search, proved. The steps are in `learning.run`."""

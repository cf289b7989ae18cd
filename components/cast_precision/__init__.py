"""Models that compute in 16 bits inside, and take and give what they did."""

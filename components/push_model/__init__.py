"""Put a blessed model where a server looks for it."""

"""SavedModels and frozen GraphDef files as frozen models: read, cut where text ends, write back."""

"""Results files: schema, measurements, labels, provenance, manifests, and completion markers.

Imports neither fairseq nor any other package of this project; everything else may import it.
"""

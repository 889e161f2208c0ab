"""What a result is: schema and provenance of documents, points, corpus manifests, dictionary hashes.

Imports neither fairseq nor any other package of this project; everything else may import it.
"""

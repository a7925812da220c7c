"""Estimators that come with Collage, registered as plug-ins under the entry-point group `collage.estimators`."""

"""Models of the tests of Django's ORM; becomes `shop/models.py`."""

from __future__ import annotations

from django.db import models


class Author(models.Model):  # noqa: DJ008 - nobody reads it
    name = models.CharField(max_length=40, unique=True)
    born = models.DateField(null=True)


class Book(models.Model):  # noqa: DJ008 - nobody reads it
    author = models.ForeignKey(Author, on_delete=models.CASCADE, related_name="books")
    title = models.TextField()
    price = models.DecimalField(max_digits=10, decimal_places=2, null=True)
    is_sold = models.BooleanField(default=False)
    at = models.DateTimeField(auto_now_add=True)
    about = models.JSONField(default=dict)
    tags = models.ManyToManyField("Tag")

    class Meta:
        indexes = (models.Index(fields=["title", "author"], name="by_title"),)
        constraints = (models.UniqueConstraint(fields=["author", "title"], name="once"),)


class Tag(models.Model):  # noqa: DJ008 - nobody reads it
    word = models.SlugField(primary_key=True)

"""Django's ORM on SQL tables over PostgreSQL's port: migrations, queries, transactions. Prints `well` at its end."""

from __future__ import annotations

import datetime as dt
import io
import json
import sys
from decimal import Decimal

import django
from django.conf import settings

place = json.loads(sys.argv[1])
settings.configure(
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": place["dbname"], "USER": "ann", "HOST": place["host"],
        "PORT": place["port"],
    }},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions", "shop"],
    USE_TZ=True, TIME_ZONE="UTC", DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)  # fmt: skip
django.setup()

from django.contrib.auth.models import Permission, User  # noqa: E402 - Django is set up first
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, connection, transaction  # noqa: E402
from django.db.models import Count, F, Max, Q, Sum  # noqa: E402
from django.db.models.functions import ExtractMonth, Lower  # noqa: E402
from django.utils import timezone  # noqa: E402
from shop.models import Author, Book, Tag  # noqa: E402  # type: ignore[import-not-found]

call_command("makemigrations", "shop", verbosity=0)
call_command("migrate", verbosity=0)
call_command("migrate", verbosity=0)  # There is nothing left to do.
assert Permission.objects.count() == 4 * 8, Permission.objects.count()
User.objects.create_user("ann", password="secret-of-ann").groups.create(name="writers")
assert User.objects.get(groups__name="writers").check_password("secret-of-ann")

ann = Author.objects.create(name="ann", born=dt.date(1990, 1, 2))
ben = Author.objects.create(name="Ben")
made = Book.objects.bulk_create(
    [Book(author=ann, title=f"b{n}", price=Decimal("1.25") * n, about={"pages": n}) for n in range(300)]
)
assert len({book.pk for book in made}) == 300
assert None not in {book.pk for book in made}
book = Book.objects.get(title="b3")
assert (book.price, book.about, book.is_sold, book.author.born) == (Decimal("3.75"), {"pages": 3}, False, ann.born)
assert abs(timezone.now() - book.at) < dt.timedelta(hours=1)
book.tags.set([Tag.objects.create(word="new"), Tag.objects.create(word="old")])
assert set(Book.objects.filter(tags__word__in=["new", "old"]).values_list("title", flat=True)) == {"b3"}
found = Author.objects.annotate(count=Count("books"), most=Max("books__price")).order_by(Lower("name"))
assert [(one.name, one.count) for one in found] == [("ann", 300), ("Ben", 0)]
assert Book.objects.filter(Q(title__startswith="b1") & ~Q(title="b1")).count() == 110
assert Book.objects.filter(title__icontains="B29").exists()
assert list(Book.objects.order_by("-id").values_list("title", flat=True)[5:7]) == ["b294", "b293"]
assert Book.objects.filter(id__lte=made[9].pk).update(price=F("price") + 1) == 10
assert Book.objects.filter(title="b0").aggregate(Sum("price"))["price__sum"] == 1
assert Book.objects.annotate(month=ExtractMonth("at")).values("month").annotate(n=Count("id")).get()["n"] == 300
assert Book.objects.filter(at__year=timezone.now().year).count() == 300
assert Author.objects.get_or_create(name="Ben") == (ben, False)
assert Author.objects.update_or_create(name="cid", defaults={"born": ann.born})[1]
assert Book.objects.select_related("author").first().author == ann
with transaction.atomic():
    Book.objects.select_for_update().get(title="b1").delete()
    try:
        with transaction.atomic():
            Author.objects.create(name="ann")
    except IntegrityError:
        Author.objects.create(name="dan")
    else:
        raise AssertionError("ann is there twice")
try:
    with transaction.atomic():
        Author.objects.all().delete()
        raise ZeroDivisionError
except ZeroDivisionError:
    pass
assert sorted(Author.objects.values_list("name", flat=True)) == ["Ben", "ann", "cid", "dan"]
assert Book.objects.count() == 299
ann.delete()
assert Book.objects.count() == 0
tables = connection.introspection.table_names()
assert {"shop_book", "auth_user", "django_session"} <= set(tables), tables
with connection.cursor() as cursor:
    columns = [column.name for column in connection.introspection.get_table_description(cursor, "shop_book")]
assert columns == ["id", "title", "price", "is_sold", "at", "about", "author_id"], columns
told = io.StringIO()
call_command("inspectdb", "shop_author", "shop_book", stdout=told)
for line in (
    "id = models.BigAutoField(primary_key=True)", "name = models.CharField(unique=True)",
    "born = models.DateField(blank=True, null=True)", "about = models.JSONField()", "at = models.DateTimeField()",
    "is_sold = models.BooleanField()", "author = models.ForeignKey(ShopAuthor, models.DO_NOTHING)",
    "unique_together = (('author', 'title'),)",
):  # fmt: skip
    assert line in {one.strip() for one in told.getvalue().splitlines()}, (line, told.getvalue())
sys.stdout.write("well\n")

# PostgreSQL with pgvector from Debian, in the place of the image pgvector/pgvector. BASE: Debian with postgresql-17-pgvector.
ARG BASE
FROM $BASE
ENV PATH=/usr/lib/postgresql/17/bin:$PATH PGDATA=/var/lib/postgresql/data LANG=C.UTF-8
COPY postgres.sh /usr/local/bin/docker-entrypoint.sh
RUN install -d -o postgres -g postgres -m 1777 /var/lib/postgresql/data && install -d -o postgres -g postgres -m 3777 /run/postgresql
USER postgres
STOPSIGNAL SIGINT
ENTRYPOINT ["sh", "/usr/local/bin/docker-entrypoint.sh"]
CMD ["postgres"]

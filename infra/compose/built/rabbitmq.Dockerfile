# RabbitMQ from Debian, in the place of the image rabbitmq. BASE: Debian with rabbitmq-server.
ARG BASE
FROM $BASE
RUN chmod 1777 /var/lib/rabbitmq /var/log/rabbitmq /etc/rabbitmq && ln -sf /usr/lib/rabbitmq/bin/* /usr/local/bin/
ENV HOME=/var/lib/rabbitmq RABBITMQ_LOGS=- LANG=C.UTF-8
USER rabbitmq
CMD ["rabbitmq-server"]

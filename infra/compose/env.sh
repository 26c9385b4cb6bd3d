# To be sourced: where clients on this machine find the compose stack, given LONGSTRIDE_PASSWORD and the ports that are set.
login=longstride:${LONGSTRIDE_PASSWORD:?set it to the one that the stack was started with}
export LONGSTRIDE_AMQP_URL=amqp://$login@127.0.0.1:${LONGSTRIDE_AMQP_PORT:-5672}/%2F
export LONGSTRIDE_MANAGEMENT_URL=http://$login@127.0.0.1:${LONGSTRIDE_MANAGEMENT_PORT:-15672}
export LONGSTRIDE_DATABASE_URL=postgresql://$login@127.0.0.1:${LONGSTRIDE_POSTGRES_PORT:-5432}/longstride
export LONGSTRIDE_S3_ENDPOINT=http://127.0.0.1:${LONGSTRIDE_S3_PORT:-9000}
export LONGSTRIDE_S3_ACCESS_KEY=longstride-services LONGSTRIDE_S3_SECRET_KEY=$LONGSTRIDE_PASSWORD LONGSTRIDE_S3_BUCKET=longstride
unset login

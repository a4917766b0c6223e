/** The files that the page carries: unpacked when they are asked for, saved byte for byte. */

/** @typedef {{kind: string, gzip: string}} Packed */

/** @param {Packed} file @returns {Promise<Blob>} */
export async function unpack(file) {
  const bytes = Uint8Array.from(atob(file.gzip), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Blob([await new Response(stream).arrayBuffer()], { type: file.kind });
}

/** @param {Record<string, Packed>} files */
export function startDownloads(files) {
  for (const button of document.querySelectorAll("[data-download]")) {
    const name = button.getAttribute("data-download") ?? "";
    button.addEventListener("click", async () => {
      const address = URL.createObjectURL(await unpack(files[name]));
      const link = document.createElement("a");
      link.href = address;
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
    });
  }
}

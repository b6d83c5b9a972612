// A browser starts no worker from a file. Where these pages are opened from a folder, the search runs in a hidden frame
// of the page instead; where they come from a server, this does nothing.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...addresses) =>
        addresses.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve())
      this.load(address).then(() => {
        const waiting = this.waiting
        this.waiting = undefined
        waiting.forEach(data => this.postMessage(data))
      })
    }

    load(address) {
      return new Promise((done, failed) => {
        const script = this.frame.contentDocument.createElement("script")
        script.src = new URL(address, location.href).href
        script.onload = done
        script.onerror = failed
        this.frame.contentDocument.body.append(script)
      })
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}

"""JavaScript that measures labels and bubbles of the visible bubble charts of a page."""

# Each problem as text: a label over another label or another model's bubble, one without a line that is closer to
# another model's bubble than to its own, a line through the bubble of another model, a text that is cut off or
# crossed by a line.
LABEL_PROBLEMS = r"""(page, view) => {
  const found = [];
  const gap = (box, c) => Math.hypot(c.x - Math.min(Math.max(c.x, box.left), box.right),
    c.y - Math.min(Math.max(c.y, box.top), box.bottom)) - c.r;
  const distance = (l, c) => {
    const dx = l.x2 - l.x1, dy = l.y2 - l.y1, all = dx * dx + dy * dy || 1;
    const t = Math.min(1, Math.max(0, ((c.x - l.x1) * dx + (c.y - l.y1) * dy) / all));
    return Math.hypot(l.x1 + t * dx - c.x, l.y1 + t * dy - c.y);
  };
  const point = (line, x, y) =>
    new view.DOMPoint(line[x].baseVal.value, line[y].baseVal.value).matrixTransform(line.getScreenCTM());
  for (const picture of page.querySelectorAll("svg.bubbles")) {
    if (view.getComputedStyle(picture).display === "none") continue;
    const frame = picture.getBoundingClientRect();
    const circles = [...picture.querySelectorAll("circle")].map(circle => {
      const box = circle.getBoundingClientRect();
      return {name: circle.querySelector("title").textContent,
        x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, r: box.width / 2};
    });
    const texts = [...picture.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    for (const [text, box] of texts)
      if (box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom)
        found.push("cut off: " + text);
    texts.forEach(([one, a], index) => texts.slice(index + 1).forEach(([other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 3) found.push(one + " over " + other);
    }));
    const lines = [...picture.querySelectorAll("line")].filter(line => line.getAttribute("stroke") !== "var(--line)");
    const drawn = lines.map(line => [point(line, "x1", "y1"), point(line, "x2", "y2")]);
    for (const path of picture.querySelectorAll("path[stroke-dasharray]")) {
      const numbers = path.getAttribute("d").match(/-?[\d.]+/g).map(Number), corners = [];
      for (let i = 0; i < numbers.length; i += 2)
        corners.push(new view.DOMPoint(numbers[i], numbers[i + 1]).matrixTransform(path.getScreenCTM()));
      drawn.push(...corners.slice(1).map((end, i) => [corners[i], end]));
    }
    for (const text of picture.querySelectorAll(".name, .note, .goal")) {
      const box = text.getBoundingClientRect();
      for (const [from, to] of drawn)
        for (let part = 0; part <= 1; part += 1 / 512) {
          const x = from.x + part * (to.x - from.x), y = from.y + part * (to.y - from.y);
          if (x > box.left + 1 && x < box.right - 1 && y > box.top + 1 && y < box.bottom - 1) {
            found.push("line through the text " + text.textContent);
            break;
          }
        }
    }
    for (const name of picture.querySelectorAll(".name")) {
      const group = name.parentNode, [start, end] = name.textContent.split("..");
      const own = circles.find(c => c.name.startsWith(start)
        && (end === undefined ? /^[:,] /.test(c.name.slice(start.length)) : c.name.includes(end)));
      if (!own) { found.push("no bubble: " + name.textContent); continue; }
      const line = group.parentNode.querySelector(":scope > line");
      const from = line && point(line, "x1", "y1"), to = line && point(line, "x2", "y2");
      const ends = line && {x1: from.x, y1: from.y, x2: to.x, y2: to.y};
      for (const other of circles) {
        if (other === own) continue;
        for (const text of group.children)
          if (gap(text.getBoundingClientRect(), other) < -1)
            found.push(text.textContent + " over the bubble of " + other.name);
        const apart = Math.hypot(own.x - other.x, own.y - other.y) - own.r - other.r;
        if (apart < 0) continue;
        const box = group.getBoundingClientRect();
        if (!ends && gap(box, other) < gap(box, own)) found.push(own.name + " closer to " + other.name);
        if (ends && distance(ends, other) < other.r - 1) found.push("line of " + own.name + " through " + other.name);
      }
      const whole = group.getBoundingClientRect();
      const reached = ends && [from, to].some(end => gap(whole, {x: end.x, y: end.y, r: 12}) < 0);
      if (ends && !reached) found.push("line of " + own.name + " to another label");
      if (ends && distance(ends, own) > own.r + 4) found.push("line of " + own.name + " to nothing");
    }
  }
  return [...new Set(found)];
}"""

# Texts of the visible charts over another text, or cut off.
TEXT_OVERLAPS = """(page, view) => {
  const found = [];
  for (const picture of page.querySelectorAll("svg.picture")) {
    if (view.getComputedStyle(picture).display === "none") continue;
    const frame = picture.getBoundingClientRect();
    const texts = [...picture.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    texts.forEach(([one, a], index) => {
      if (a.left < frame.left || a.right > frame.right || a.top < frame.top || a.bottom > frame.bottom)
        found.push("cut off: " + one);
      for (const [other, b] of texts.slice(index + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 3) found.push(one + " over " + other);
      }
    });
  }
  return found;
}"""

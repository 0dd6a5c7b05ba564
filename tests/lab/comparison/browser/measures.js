(() => {
  const channels = (text) => {
    const numbers = text.match(/[\d.]+/g).map(Number);
    return numbers.length < 4 ? [...numbers, 1] : numbers;
  };
  const over = (front, back) => front.slice(0, 3).map((value, i) => value * front[3] + back[i] * (1 - front[3]));
  const luminance = (color) => {
    const [r, g, b] = color.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = channels(getComputedStyle(at).backgroundColor);
      if (color[3] > 0) return color.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const contrast = (element) => {
    const style = getComputedStyle(element);
    const back = background(element);
    const front = over(channels(element.ownerSVGElement ? style.fill : style.color), back);
    const [high, low] = [luminance(front), luminance(back)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const isSeen = (element) => element.getClientRects().length > 0 && !["title", "desc"].includes(element.localName);
  const texts = [...document.body.querySelectorAll("*")].filter((element) => hasText(element) && isSeen(element));
  const size = (element) => {
    const svg = element.ownerSVGElement;
    const scale = svg && svg.viewBox.baseVal ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    return parseFloat(getComputedStyle(element).fontSize) * scale;
  };
  const collisions = [];
  for (const svg of document.querySelectorAll("figure .panel svg")) {
    const boxes = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    boxes.forEach(([one, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 3) collisions.push(`${svg.querySelector("title").textContent}: ${one} / ${other}`);
    }));
  }
  const boxes = (selector) => [...document.querySelectorAll(selector)].map((element) => {
    const box = element.getBoundingClientRect();
    return [box.width, box.height];
  });
  const lowest = texts.map((element) => [contrast(element), element.textContent.slice(0, 40)]).sort((a, b) => a[0] - b[0])[0];
  const smallest = texts.map((element) => [size(element), element.textContent.slice(0, 40)]).sort((a, b) => a[0] - b[0])[0];
  return {
    background: getComputedStyle(document.documentElement).backgroundColor,
    ink: getComputedStyle(document.documentElement).color,
    excess: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    lowest,
    smallest,
    collisions,
    tables: boxes("table"),
    figures: boxes("figure"),
    pictures: [...document.querySelectorAll("figure img")].map((img) => [img.width, img.height, img.naturalWidth, img.naturalHeight]),
    drawings: boxes("figure .panel svg"),
    bars: boxes("figure .panel svg .bar").length,
    fills: [...new Set([...document.querySelectorAll("figure .mark")].map((mark) => getComputedStyle(mark).fill))],
  };
})()

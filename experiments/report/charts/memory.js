// What the scratchpad holds over time: a rectangle for each tensor or tile, named where there is room.

const LETTER_PIXELS = 6.6; // A letter of a name in a rectangle.

function blockText({ size, blocks }, number) {
  const [first, bytes] = [blocks.address[number], blocks.bytes[number]];
  const cycles = `cycles ${grouped(blocks.begin[number])} to ${grouped(blocks.end[number])}`;
  const address = `${grouped(bytes)} bytes, addresses ${grouped(first)} to ${grouped(first + bytes - 1)}`;
  return `<b>${escaped(blocks.label[number])}</b><br>${address}<br>${cycles}`;
}

// A trace a group of the rectangles in the window.
function memoryTraces(figure, width) {
  const [from, to] = gantt.range;
  const pixel = (to - from) / width;
  const { blocks, size, groups } = figure;
  const top = figure.layout.yaxis.range[1];
  const plot = figure.layout.height - DATA.margin;
  const numbers = blocks.begin.map((_, number) => number).filter((number) => blocks.end[number] > from && blocks.begin[number] < to);
  return groups.map(({ name, color, text }, group) => {
    const members = numbers.filter((number) => blocks.group[number] === group);
    const spans = members.map((number) => [Math.max(blocks.begin[number], from), Math.min(blocks.end[number], to)]);
    const fits = members.map((number, place) => {
      const [begin, end] = spans[place];
      const high = (blocks.bytes[number] / size / top) * plot;
      return high > 15 && (end - begin) / pixel > LETTER_PIXELS * blocks.label[number].length + 8;
    });
    return {
      type: "bar",
      name: escaped(name),
      x: spans.map(([begin]) => begin),
      offset: 0,
      width: spans.map(([begin, end]) => Math.max(end - begin, pixel)),
      base: members.map((number) => blocks.address[number] / size),
      y: members.map((number) => blocks.bytes[number] / size),
      text: members.map((number, place) => (fits[place] ? escaped(blocks.label[number]) : "")),
      textposition: fits.map((one) => (one ? "inside" : "none")),
      insidetextanchor: "middle",
      textangle: 0,
      constraintext: "none",
      textfont: { size: 11, color: text },
      hovertext: members.map((number) => blockText(figure, number)),
      hovertemplate: "%{hovertext}<extra></extra>",
      customdata: members.map((number) => blocks.layer[number]),
      marker: { color, line: { color: "#FFFFFF", width: 0.5 } },
    };
  });
}

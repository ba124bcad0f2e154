# frozen_string_literal: true

require "zlib"
require "stringio"

# Exchanges with an HTTP server, good and bad, each made from a seed: what the server sends on each connection, and
# what the client asks for. The same seed gives the same case in every process.
class HTTPCase
  Request = Struct.new(:verb, :mode, :body, :header)

  WORDS = %w[alpha beta gamma delta epsilon].freeze
  NAMES = %w[X-One x-two Server Date Set-Cookie ETag Cache-Control X--Odd -Lead Vary Content-Type Location].freeze

  attr_reader :seed, :requests, :connections, :options

  def initialize(seed)
    @seed = seed
    @random = Random.new(seed)
    @requests = []
    @options = {ignore_eof: !chance(0.1), stall: false}
    @connections = [Array.new(1 + @random.rand(3)) { reply }]
    # A client that finds its connection closed opens another one.
    @connections << Array.new(2) { reply } if chance(0.5)
  end

  def tls?
    @seed % 16 == 5
  end

  def inspect
    "#<case #{@seed} #{@requests.map { |request| [request.verb, request.mode] }} #{@connections}>"
  end

  private

  def chance(probability)
    @random.rand < probability
  end

  def pick(*choices)
    choices[@random.rand(choices.size)]
  end

  def reply
    verb = pick("GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE")
    body = %w[POST PUT].include?(verb) ? bytes(pick(0, 10, 3000, 40_000)) : nil
    @requests << Request.new(verb, pick(:body, :block, :block, :string, :io, :unread), body, request_header)
    whole = message(verb)
    ending = nil
    if chance(0.12)
      whole = whole.byteslice(0, @random.rand(whole.bytesize + 1))
      ending = pick(:close, :close, :reset)
    elsif @ends || chance(0.1)
      ending = pick(:close, :close, :close, :reset)
    end
    {pieces: split(whole), ending: ending}
  end

  def request_header
    header = {}
    header["Accept-Encoding"] = "gzip" if chance(0.1)
    header["X-#{WORDS[@random.rand(5)]}"] = bytes(5).unpack1("H*") if chance(0.3)
    header["Connection"] = "close" if chance(0.05)
    header["Expect"] = "100-continue" if chance(0.03)
    header
  end

  def message(verb)
    @ends = false
    head = +"".b
    pick(0, 0, 0, 0, 0, 0, 0, 1, 2).times do
      head << "HTTP/1.1 10#{pick(0, 2, 3)} Wait#{line_end}#{"X-Early: yes#{line_end}" if chance(0.5)}#{line_end}"
    end
    status = pick(200, 200, 200, 200, 200, 201, 404, 500, 302, 204, 304, 299, 799)
    eol = line_end
    head << status_line(status).b << eol
    fields = Array.new(@random.rand(6)) { field(eol) }
    body = payload(status, fields, eol)
    fields.shuffle!(random: @random)
    head << fields.map(&:b).join << eol
    head << body.b unless verb == "HEAD" || [204, 304].include?(status)
    head << bytes(5) if chance(0.02) # left over
    head
  end

  def line_end
    chance(0.1) ? "\n" : "\r\n"
  end

  def status_line(status)
    if chance(0.2)
      return pick("HTTP/1.1 #{status}", "HTTP/1.1 #{status} ", "HTTP/1.0 #{status} OK",
        "http/1.1  #{status}   Very  fine ", "HTTP #{status} OK",
        "HTTP/1.1 #{status} \xc3\xa4\xff", "HTTP/2.0 #{status} OK", "HTTP/11.22\t#{status}\tOK")
    end
    if chance(0.03)
      return pick("HTTP/1.1 20 OK", "HTTP/1 200 OK", "HTTX/1.1 200 OK", "", "HTTP/1.1 2000 OK", "HTTP/1.1200 OK",
        "garbage", "HTTP/1.1 200OK")
    end

    "HTTP/1.1 #{status} OK"
  end

  def field(eol)
    name = NAMES[@random.rand(NAMES.size)]
    value = pick("plain", "two words", "", "a:b", "\xe4\xf6".b, "x" * pick(10, 300, 5000), "  spaced  ", "tab\tbed")
    case @random.rand(40)
    when 0 then "#{name}:#{value}#{eol}"
    when 1 then "#{name} :\t #{value}#{eol}"
    when 2 then "#{name}: #{value}#{eol}  folded#{eol}\tagain #{eol}"
    when 3 then "#{name}: #{eol} folded#{eol}"
    when 4 then "#{name}: #{value}#{eol} #{eol}" # folded without content
    when 5 then " lead: #{value}#{eol}"
    when 6 then (chance(0.3) ? "no colon here#{eol}" : "#{name}: a\rb#{eol}")
    when 7 then ": no name#{eol}"
    when 8 then "#{name}: #{value}\0 #{eol}"
    when 9 then "#{name}: #{value}\r\n"
    when 10 then (chance(0.2) ? "#{name}: #{"long " * 20_000}#{eol}" : "\xe4\xd6#{name}: high#{eol}".b)
    when 11 then "na me: #{value}\v\f#{eol}"
    when 12 then "Connection: #{pick("close", "keep-alive", "Close, x", "x")}#{eol}"
    else "#{name}: #{value}#{eol}"
    end
  end

  def payload(status, fields, eol)
    plain = content
    coded = encode(plain, fields, eol)
    case @random.rand(20)
    when 0..8
      fields << "Content-Length: #{coded.bytesize}#{eol}"
      coded
    when 9..14
      fields <<
        "Transfer-Encoding: #{pick("chunked", "chunked", "chunked", "Chunked", "gzip, chunked", "chunked ")}#{eol}"
      chunks(coded)
    when 15
      @ends = true
      coded
    when 16 then wrong_length(coded, fields, eol)
    when 17
      2.times { fields << "Content-Length: #{coded.bytesize}#{eol}" }
      coded
    when 18
      fields << "Content-Range: bytes 0-#{coded.bytesize - 1}/9999#{eol}"
      fields << "Content-Length: #{coded.bytesize}#{eol}" if chance(0.6)
      coded
    else
      fields << "Content-Length: 0#{eol}"
      ""
    end
  end

  def wrong_length(coded, fields, eol)
    @ends = true
    size = coded.bytesize
    wrong = pick(size + 100, [size - 1, 0].max, "many", "", "12 34", "-5", "+3", "99999999999999999999999",
      "#{size}, #{size}", "5, 6")
    fields << "Content-Length: #{wrong}#{eol}"
    coded
  end

  def content
    size = pick(0, 1, 10, 100, 1000, 1000, 16_384, 20_000, 70_000, 200_000)
    size = 200_000 if size == 70_000 && chance(0.1)
    pick(
      -> { "text " * (size / 5) }, -> { bytes(size) }, -> { "a" * size + "\u00e4" }, -> { "x" * size },
      -> { "\u00e4" * (size / 2) }
    ).call.b
  end

  def encode(plain, fields, eol)
    case @random.rand(12)
    when 0, 1
      fields << "Content-Encoding: #{pick("gzip", "x-gzip", "GZIP")}#{eol}"
      gzip(plain)
    when 2
      fields << "Content-Encoding: deflate#{eol}"
      Zlib::Deflate.deflate(plain)
    when 3
      fields << "Content-Encoding: #{pick("gzip", "identity", "none", "br")}#{eol}" # which does not match the body
      plain
    when 4
      fields << "Content-Encoding: gzip#{eol}"
      whole = gzip(plain)
      chance(0.5) ? whole.byteslice(0, whole.bytesize / 2) : whole + "trailing".b
    else plain
    end
  end

  def gzip(plain)
    out = StringIO.new("".b)
    writer = Zlib::GzipWriter.new(out)
    writer.mtime = 1
    writer.write(plain)
    writer.close
    out.string
  end

  def chunks(coded)
    out = +"".b
    rest = coded
    until rest.empty?
      size = [rest.bytesize, 1 + @random.rand(pick(3, 500, 30_000, 100_000))].min
      size = rest.bytesize if out.bytesize > 2000 && size < 500
      digits = size.to_s(16)
      digits = digits.upcase if chance(0.2)
      digits = digits.rjust(6, "0") if chance(0.1)
      out << digits << pick("", "", "", ";name=val", " ; x", " ") << "\r\n" << rest.byteslice(0, size)
      out << pick("\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "zz")
      rest = rest.byteslice(size..)
    end
    out << pick("zz\r\n", "xyz5\r\nabcde\r\n", "ffffffffffffffffffff\r\n") if chance(0.03)
    out << pick("0\r\n", "0\r\n", "0\r\n", "000\r\n", "0;last\r\n", "0\n")
    out << pick("", "", "X-Trailer: 1\r\n", "A: b\nC: d\r\n") << "\r\n"
    out
  end

  # Mostly in one piece, sometimes in a few, sometimes byte by byte for a while.
  def split(whole)
    return [whole] if chance(0.3)

    cuts = Array.new(@random.rand(6)) { @random.rand(whole.bytesize + 1) }
    if chance(0.2)
      start = @random.rand(whole.bytesize + 1)
      cuts.concat((start..start + 20).to_a.select { |cut| cut < whole.bytesize })
    end
    [0, *cuts.uniq.sort, whole.bytesize].each_cons(2).map { |from, to| whole.byteslice(from, to - from) }
      .reject(&:empty?)
  end

  def bytes(size)
    @random.bytes(size)
  end
end

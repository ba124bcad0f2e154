# frozen_string_literal: true

# Short answers of an HTTP server that are odd in one thing or two: interim answers, fields about the connection, codes
# without a body that have one, lengths and chunks, and what stands behind the end. For the exchanges of whole sizes and
# codings see http_cases.rb.
class OddHTTPAnswers
  VERSIONS = %w[HTTP/1.1 HTTP/1.1 HTTP/1.1 HTTP/1.0 HTTP/0.9 HTTP/1.2 HTTP/2].freeze
  TOKENS = ["close", "Close", "CLOSE ", "keep-alive", "Keep-Alive, close", "close,keep-alive", "closed", "x-close",
    "close;q=1", "\"close\"", "upgrade", "TE, close ,", "", ",", " , close", "close\tx", "close,", "keep-alive,Upgrade",
    "clo se"].freeze
  IDLE = ["timeout=5", "timeout=0", "timeout=1", "max=0", "max=1", "timeout=5, max=0", "max=\"0\"", "timeout=", "max",
    "timeout=-1", "timeout=0.2", "timeout=99999999999999999999", "Timeout = 3", "x=timeout=0", ""].freeze
  CODES = [100, 101, 102, 103, 199, 201, 203, 204, 204, 205, 206, 226, 299, 300, 304, 304, 399, 400, 401, 404, 407, 408,
    417, 421, 426, 429, 499, 500, 503, 599].freeze
  EARLY = ["", "", "Connection: close\r\n", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n",
    "Connection: upgrade\r\nUpgrade: foo\r\n"].freeze
  # Of the coding, and beside "chunked".
  CODINGS = [["identity"], ["chunked, identity"], ["xchunked"], ["\tchunked"], ["CHUNKED"], [",chunked"],
    %w[chunked chunked], %w[chunked identity], %w[chunked gzip]].freeze
  # Of a text of so many bytes.
  LENGTHS = ["+%d", "0x%x", " %d ", "%d,", "0%d", "-0", "%1$d, %1$d", "_1", "1_0"].freeze
  SIZES = ["%x", "%x", "%x", "%X", "%04x", "%x;a=b"].freeze
  ODD_SIZES = ["%x ;a=\"\r\"", " %x", "0x%x", "+%x", "-%x"].freeze
  TRAILERS = ["", "", "", "X-Trailer: yes\r\n", "Connection: close\r\n", "Content-Length: 3\r\n", "no colon\r\n",
    " folded\r\n"].freeze
  BEHIND = ["\r\n", "\n", "\0", "x", "0\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 408 Gone\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 Not yours\r\nContent-Length: 2\r\n\r\nno",
    "HTTP/1.1 200 Not yours\r\nContent-Length: 40000\r\n\r\n#{"z" * 40_000}"].freeze

  def initialize(random)
    @random = random
  end

  # @return [Hash] a reply as of ScriptedHTTPServer, whose text says the number of its request. doubtful: its fields
  #   do not say for certain where it ends
  def answer(verb, number)
    @ends = @doubtful = false
    text = "answer #{number}, and #{"more " * pick([0, 0, 1, 10, 5000])}"
    whole = "#{interim}#{final(verb, text)}#{pick(BEHIND) if chance(0.08)}"
    {pieces: cut(whole), ending: (pick([:close, :reset]) if chance(0.04)) || (:close if @ends),
     doubtful: @doubtful}
  end

  private

  def pick(from) = from[@random.rand(from.size)]

  def chance(probability) = @random.rand < probability

  def interim
    return unless chance(0.15)

    Array.new(1 + @random.rand(2)) { "HTTP/1.1 #{pick([100, 101, 102, 103])} Early\r\n#{pick(EARLY)}\r\n" }.join
  end

  def final(verb, text)
    code = chance(0.6) ? 200 : pick(CODES)
    fields = {"Connection" => [TOKENS, 0.2], "connection" => [TOKENS, 0.05], "Proxy-Connection" => [TOKENS, 0.05],
              "Keep-Alive" => [IDLE, 0.15], "Upgrade" => [%w[h2c websocket], 0.05],
              "WWW-Authenticate" => [["NTLM", "Negotiate abc", "Basic realm=x", "Basic, NTLM"], 0.04]}
      .filter_map { |name, (values, probability)| "#{name}: #{pick(values)}" if chance(probability) }
    body = framed(text, fields)
    body = "" if (verb == "HEAD" || [204, 205, 304].include?(code)) && !chance(0.25)
    @doubtful = true if [204, 205].include?(code) && fields.any? { |field| field.match?(/\A(Content-L|T)/) }
    @doubtful = false if verb == "HEAD" || code == 304
    "#{chance(0.2) ? pick(VERSIONS) : "HTTP/1.1"} #{code} Fine\r\n" \
      "#{fields.shuffle(random: @random).map { |field| "#{field}\r\n" }.join}\r\n#{body}"
  end

  def framed(text, fields)
    size = text.bytesize
    kind = @random.rand(20)
    @doubtful = [10, 13].include?(kind)
    case kind
    when 0..5 then fields << "Content-Length: #{size}"
    when 6..9
      fields << "Transfer-Encoding: chunked"
      return chunked(text)
    when 10
      fields << "Transfer-Encoding: chunked" << "Content-Length: #{pick([0, 3, size])}"
      return chunked(text)
    when 11, 12
      codings = pick(CODINGS)
      @doubtful = !(codings.one? && codings[0].match?(/\A\s*chunked\s*\z/i)) # blanks around a value are none of it
      fields.concat(codings.map { |coding| "Transfer-Encoding: #{coding}" })
      return chunked(text)
    when 13
      @ends = chance(0.5)
      fields << "Content-Length: #{size}" << "Content-Length: #{pick([0, size, size + 1])}"
    when 14 then fields << "Content-Length: #{[size - 1 - @random.rand(5), 0].max}"
    when 15
      @ends = true
      fields << "Content-Length: #{size + 1 + @random.rand(5)}"
    when 16
      fields << "Content-Range: bytes 0-#{size - 1}/#{size}"
      chance(0.7) ? fields << "Content-Length: #{size}" : @ends = true
    when 17 then @ends = true
    else
      @ends = chance(0.7)
      length = format(pick(LENGTHS), size)
      @doubtful = !length.match?(/\A\s*0*#{size}\s*\z/)
      fields << "Content-Length: #{length}"
    end
    text
  end

  def chunked(text)
    out = +""
    until text.empty?
      size = (out.bytesize > 1000) ? text.bytesize : [text.bytesize, 1 + @random.rand(pick([5, 200, 20_000]))].min
      out << format(pick(chance(0.05) ? ODD_SIZES : SIZES), size) << (chance(0.02) ? "\n" : "\r\n")
      out << text.byteslice(0, size) << (chance(0.02) ? pick(["", "\n", "xx", "\r\n\r\n"]) : "\r\n")
      text = text.byteslice(size..)
    end
    out << pick(["0\r\n", "0\r\n", "00\r\n", "0;x=y\r\n"]) << pick(TRAILERS) << (chance(0.03) ? "" : "\r\n")
  end

  # Often just before the last byte or two.
  def cut(whole)
    return [whole] if chance(0.5)

    cuts = Array.new(@random.rand(4)) { @random.rand(whole.bytesize + 1) }
    cuts << whole.bytesize - 1 << whole.bytesize - 2 if chance(0.2)
    [0, *cuts.uniq.sort, whole.bytesize].each_cons(2).map { |from, to| whole.byteslice(from, to - from) }
      .reject(&:empty?)
  end
end

# frozen_string_literal: true

require "stringio"

# What a program sees of a request, in a form that can be compared, and children that compare.
module HTTPResults
  private

  def in_child
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      writer.binmode.write(Marshal.dump(yield))
      writer.close
      done = true
    rescue => error
      warn error.full_message(highlight: false)
    ensure
      $stdout.flush
      exit!(done ? 0 : 1)
    end
    writer.close
    [pid, reader.binmode]
  end

  def result(http, wanted, path = "/path")
    got = {segments: +"".b}
    begin
      response = ask(http, wanted, got, path)
      message = response.message
      got[:status] = [response.class, response.code, message, response.http_version, message&.encoding]
      got[:header] = response.to_hash.map { |name, values| [name, name.encoding, values, values.map(&:encoding)] }
      body = response.body
      got[:body] = [body.class, body.is_a?(String) ? body.b : nil, body.is_a?(String) ? body.encoding : nil]
    rescue => error
      got[:error] = [error.class, message_of(error), (error.io.class if error.respond_to?(:io))]
    end
    got[:closed] = http.instance_variable_get(:@socket)&.closed?
    got
  end

  def message_of(error)
    error.message.b.gsub(/fd \d+/, "fd N").gsub(/0x\h+/, "0x")
  end

  def ask(http, wanted, got, path = "/path")
    request = Net::HTTPGenericRequest.new(wanted.verb, !wanted.body.nil?, wanted.verb != "HEAD", path, wanted.header)
    request["Content-Type"] = "text/plain" if wanted.body
    case wanted.mode
    when :body then http.request(request, wanted.body)
    when :unread then http.request(request, wanted.body) { |response| got[:seen] = response.code }
    when :block
      http.request(request, wanted.body) { |response| response.read_body { |segment| got[:segments] << segment } }
    when :break then http.request(request, wanted.body) { |response| break response }
    when :throw then catch(:out) { http.request(request, wanted.body) { |one| one.read_body { throw :out, one } } }
    when :raise
      http.request(request, wanted.body) { |response| response.read_body { raise ArgumentError, "on purpose" } }
    when :string
      http.request(request, wanted.body) do |response|
        got[:string] = into = +"before"
        response.read_body(into)
      end
    else
      sink = StringIO.new("".b)
      http.request(request, wanted.body) { |response| response.read_body(sink) }.tap { got[:io] = sink.string }
    end
  end
end

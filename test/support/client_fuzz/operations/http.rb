# frozen_string_literal: true

require "net/http"

module ClientFuzz
  module Operations
    # The accelerated Net::HTTP, with several requests on a connection.
    module HTTP
      private

      def operation_http_get = over_http { |http| get(http) }

      def operation_http_https = over_http(tls: true) { |http| get(http) }

      def operation_http_ways_out = over_http { |http| leave_body(http) }

      def operation_http_https_ways_out = over_http(tls: true) { |http| leave_body(http) }

      def operation_http_post
        over_http do |http|
          body = @token * (1 + roll(30_000))
          @framing = framing
          request = Net::HTTP::Post.new("/#{@token}/#{@framing}/1")
          if chance(0.5)
            request.body = body
          else
            request.body_stream = StringIO.new(body)
            request["Content-Length"] = body.bytesize.to_s
          end
          response = http.request(request)
          @request_token = @token
          check_body(response.body, body, "an answer to POST") unless cut_head?(response)
        end
      end

      def over_http(tls: false)
        place = tls ? @clients.backends.https : @clients.backends.http
        http = Net::HTTP.new("127.0.0.1", place.port)
        http.open_timeout = http.read_timeout = http.write_timeout = 1
        http.max_retries = roll(2)
        http.ignore_eof = false if WHOLE
        if tls
          http.use_ssl = true
          http.ca_file = @clients.backends.authority
        end
        http.start
        (1 + roll(5)).times do |n|
          @request_token = "#{@token}#{n}."
          yield http
        rescue Net::ReadTimeout, IOError, SystemCallError => error
          # A program may send more requests: Net::HTTP has closed the socket, and connects again.
          chance(0.5) ? raise : @session.count(error)
        rescue Net::HTTPBadResponse => error
          raise unless of_a_cut_head?(error)

          @session.count(error)
        end
      ensure
        http.finish if http&.started?
      end

      # No body that ends with the connection: its end could also be a proxy's cut.
      FRAMINGS = %w[length chunked gzip].freeze
      # Ruby's own Net::HTTP raises NoMethodError when a block leaves a gzip body by `break`.
      TO_LEAVE = (FRAMINGS - %w[gzip]).freeze
      # Net::HTTP returns a body that was cut short as if it were whole, unless ignore_eof is false (since Ruby 3.2).
      WHOLE = Net::HTTP.method_defined?(:ignore_eof=)

      def framing(among = FRAMINGS) = among.sample(random: @random)

      def path(count, among = FRAMINGS) = "/#{@request_token}/#{@framing = framing(among)}/#{count}"

      # Whether Net::HTTP returns such a body when the connection ends in its middle.
      def may_be_cut? = !WHOLE && @framing != "chunked"

      def check_body(read, whole, what)
        right = may_be_cut? ? whole.start_with?(read) : read == whole
        expect(right, "#{what} of #{@request_token} has #{read.size} of #{whole.size} bytes: #{read[0, 60].inspect}")
      end

      def get(http)
        count = roll(4) * roll(3000)
        response = http.get(path(count))
        return if cut_head?(response)

        check_head(response)
        check_body(response.body, @request_token * count, "the answer")
      end

      def leave_body(http)
        way = %i[break throw raise none].sample(random: @random)
        count, pieces = roll(4) * roll(3000), roll(4)
        read = +""
        cut = false
        catch(:out) do
          http.request_get(path(count, (way == :none) ? FRAMINGS : TO_LEAVE)) do |response|
            read.clear # Net::HTTP may have tried before
            check_head(response) unless (cut = cut_head?(response))
            response.read_body do |piece|
              read << piece
              next if (pieces -= 1) >= 0
              break if way == :break
              throw :out if way == :throw
              raise Actor::OnPurpose if way == :raise
            end
          end
        rescue Actor::OnPurpose
          nil
        rescue Net::HTTPBadResponse
          raise unless way == :break # Net::HTTP loses its place when a block leaves the middle of a chunk by `break`
        end
        whole = @request_token * count
        return check_body(read, whole, "the read body") if way == :none && !cut

        expect(whole.start_with?(read), "the read body of #{@request_token} begins with #{read[0, 60].inspect}")
      end

      # Net::HTTP takes a head that the connection's end has cut for a whole one, or for a bad one.
      def cut_head?(response) = response["X-Last"].nil?

      def of_a_cut_head?(error)
        status = error.message[/\Awrong status line: "(.*)"\z/, 1]
        status ? "HTTP/1.1 200 OK".start_with?(status) : error.message.start_with?("wrong header line format")
      end

      def check_head(response)
        token = response["X-Token"]
        expect(token == @request_token, "#{@request_token} got the head of #{token.inspect}")
      end
    end
  end
end

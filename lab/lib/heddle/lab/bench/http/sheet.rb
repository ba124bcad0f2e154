# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      class HTTP < Bench
        # Rows of figures in the layout of 2008 ("the seed"), with further columns. Rows come from a run or from files,
        # and go to a table, to CSV and to the graph that the author of 2008 wanted: clusters by site, and by
        # implementation.
        class Sheet
          SEED = ["Site", "Impl", "Test", "KBytes Transferred", "KBytes/second", "Chunk Count", "Mean Chunk Size",
            "Max Chunk Size", "Min Chunk Size",
            "User Time", "System Time", "Total CPU Time", "Clock Time"].freeze
          ADDED = ["%CPU", "CPU s per GB", "Operations", "Allocations", "Peak RSS KiB", "Errors", "Digest ok", "Round",
            "Twin", "Busy threads", "Error", "Versions"].freeze
          COLUMNS = (SEED + ADDED).freeze
          # Columns by which rows of one cell differ, or that are not figures.
          WORDS = ["Site", "Impl", "Test", "Digest ok", "Round", "Twin", "Error", "Versions"].freeze
          private_constant :ADDED, :WORDS

          # The units of the columns that can be drawn, for the graph's axis.
          UNITS = {"%CPU" => "per cent of one core, median", "CPU s per GB" => "CPU seconds per 10⁹ bytes, median",
                   "Total CPU Time" => "seconds of CPU, median", "KBytes/second" => "KBytes a second, median"}.freeze

          class << self
            # @param record [Record] of a run of this bench
            # @return [Sheet]
            def of(record)
              versions = record.header["models"].to_h do |model|
                [model["name"], [record.header["environment"]["ruby"][/\Aruby \S+/], *model["versions"]].join("; ")]
              end
              new(in_order(record).map { |round| row_of(record, round).merge("Versions" => versions[round.model]) })
            end

            # @param text [String] CSV with a header: the seed's, or ours
            # @return [Sheet]
            # @raise [Error] when it is neither
            def parse(text)
              header, *lines = Report::CSV.parse(text)
              missing = SEED - header.to_a.map(&:strip)
              unless missing.empty?
                raise Error,
                  "this is not a CSV of heddle bench http, nor of 2008: it lacks the column #{missing.first.inspect}"
              end

              columns = header.map(&:strip)
              new(lines.map { |line| complete(columns.zip(line).to_h) })
            end

            private

            # The cells ran in a random order; the rows are in the order of the bench.
            def in_order(record)
              names = record.header["models"].map { |model| model["name"] }
              record.rounds.sort_by do |round|
                [record.header["cases"].index(round.case), names.index(round.model), round.round, round.twin ? 1 : 0]
              end
            end

            def row_of(record, round)
              measures = round.measures || {}
              options = record.header["options"]
              site, test = measures.values_at("site", "test")
              cell = {"Site" => site || guess(options["sites"], round.case), "Impl" => round.model,
                      "Test" => test || guess(options["tests"], round.case),
                      "Round" => round.round, "Twin" => round.twin, "Busy threads" => options["busy_threads"],
                      "Error" => round.error || measures["first_error"]}
              measures.empty? ? cell : cell.merge(figures(measures))
            end

            # A cell that failed has no measures, from which its row could be made.
            def guess(names, label)
              names.find { |name| label == name || label.start_with?("#{name}, ") || label.end_with?(", #{name}") } ||
                names.first
            end

            def figures(m)
              complete(
                {"KBytes Transferred" => round(m["bytes"] / 1024.0),
                 "KBytes/second" => round(m["bytes"] / 1024.0 / m["wall"]), "Chunk Count" => m["chunks"],
                 "Mean Chunk Size" => m["chunks"].to_i.positive? ? round(m["bytes"] / m["chunks"].to_f) : nil,
                 "Max Chunk Size" => m["largest_chunk"], "Min Chunk Size" => m["smallest_chunk"],
                 "User Time" => round(m["user"]), "System Time" => round(m["system"]),
                 "Total CPU Time" => round(m["cpu"]), "Clock Time" => round(m["wall"]), "Operations" => m["operations"],
                 "Allocations" => m["allocations"], "Peak RSS KiB" => m["peak_rss_kib"], "Errors" => m["errors"],
                 "Digest ok" => m["digest_ok"]}
              )
            end

            # Computes the columns that were left to Excel in 2008.
            def complete(row)
              kbytes, cpu, clock = row.values_at("KBytes Transferred", "Total CPU Time", "Clock Time").map do |text|
                number(text)
              end
              row["%CPU"] ||= round(cpu * 100 / clock) if cpu && clock&.positive?
              row["CPU s per GB"] ||= round(cpu * 1e9 / 1024 / kbytes) if cpu && kbytes&.positive?
              row
            end

            def round(number) = number.round(6)

            # @param text [String, Numeric, nil]
            # @return [Float, nil]
            def number(text) = Float(text.to_s.delete_suffix("%"), exception: false)
          end

          # @return [Array<Hash{String => Object}>] by column
          attr_reader :rows

          # @param rows [Array<Hash{String => Object}>]
          def initialize(rows)
            @rows = rows
          end

          # @return [String] every row (RFC 4180), the seed's columns first
          def to_csv = Report::CSV.generate([COLUMNS, *rows.map { |row| row.values_at(*COLUMNS) }])

          # @return [Sheet] a row a cell: medians of its rounds, twins left out. A test that is called by a number was a
          #   round in 2008.
          def medians
            cells = rows.reject { |row| row["Twin"].to_s == "true" }.group_by do |row|
              [row["Site"], row["Impl"], row["Test"].to_s.match?(/\A\d*\z/) ? "" : row["Test"]]
            end
            Sheet.new(cells.map { |cell, rounds| median_of(cell, rounds) })
          end

          # @return [Report::Table] of the medians
          def table
            columns = COLUMNS - ["Round", "Twin", "Error", "Versions"]
            rows = medians.rows.map { |row| row.values_at(*columns).map { |value| show(value) } }
            Report::Table.new(title: "In the seed's columns: medians of the rounds", columns: columns,
              rows: rows, prose: false,
              notes: ["times are seconds; a chunk is what a client hands on at once; Peak RSS is the whole process's"])
          end

          # @param column [String] of {UNITS}
          # @return [Hash{String => Report::BarChart}] the same bars by site and by implementation, by the end of their
          #   file names
          def charts(column)
            cells = medians.rows.filter_map do |row|
              (value = Sheet.send(:number, row[column])) && [cluster(row), row["Impl"], value]
            end
            return {} if cells.empty?

            prefix = column.downcase.gsub("%", "percent-").gsub("/", "-per-").gsub(/[^a-z-]+/, "-")
            sites = rows.map { |row| row["Site"] }.uniq
            {"#{prefix}-by-site" => chart(column, cells, "Clusters: #{(sites.size > 1) ? "sites" : "tests"}"),
             "#{prefix}-by-implementation" => chart(column, cells.map { |site, name, value| [name, site, value] },
               "Clusters: implementations")}
          end

          private

          def show(value) = value.is_a?(Float) ? Report::Matrix.figure(value) : (value || "–").to_s

          def median_of(cell, rounds)
            figures = (COLUMNS - WORDS).to_h do |column|
              [column, Statistics.median(rounds.filter_map { |row| Sheet.send(:number, row[column]) })]
            end
            whole = figures.transform_values { |value| (value && value == value.round) ? value.round : value }
            {"Site" => cell[0], "Impl" => cell[1], "Test" => cell[2], **whole,
             "Digest ok" => rounds.map { |row| row["Digest ok"].to_s }.reject(&:empty?).uniq.join(" or "),
             "Error" => rounds.filter_map { |row| row["Error"] unless row["Error"].to_s.empty? }.first,
             "Versions" => rounds.filter_map { |row| row["Versions"] }.uniq.join(" or ")}
          end

          # Sites, and their tests where there are several.
          def cluster(row)
            @several ||= %w[Site Test].to_h { |column| [column, rows.map { |one| one[column] }.uniq.size > 1] }
            return row["Site"] if !@several["Test"] || row["Test"].to_s.match?(/\A\d*\z/)

            @several["Site"] ? "#{row["Site"]}, #{row["Test"]}" : row["Test"]
          end

          def chart(column, cells, unit)
            clusters, names = cells.map(&:first).uniq, cells.map { |cell| cell[1] }.uniq
            values = cells.to_h { |cluster, name, value| [[cluster, name], value] }
            series = names.map do |name|
              Report::BarChart::Series.new(name: name, values: clusters.map { |cluster| values[[cluster, name]] })
            end
            Report::BarChart.new(title: (column == "%CPU") ? "CPU usage of HTTP clients" : column,
              unit: "#{UNITS.fetch(column)}. #{unit}", clusters: clusters, series: series)
          end
        end
      end
    end
  end
end
